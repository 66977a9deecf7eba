"""What can be called, over HTTP and WebSocket alike: every verb once.

| module           | what it is for |
|------------------|-----------------|
| `calls`          | the service: every verb once, for HTTP and WebSocket |
| `verb_calls`     | a call of a verb, and what it answers |
| `reading_verbs`  | verbs that read |
| `writing_verbs`  | verbs that write |
| `message_verbs`  | messages of templates, held for everybody who asks |
| `question_verbs` | verbs that ask about provenance |
| `arguments`      | the arguments of every verb |
| `typed_values`   | plain values of a request as values of a table's types |
"""
