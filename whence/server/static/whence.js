// Whence for JavaScript: read, write and subscribe to a served database. No build step, no dependencies.
//
//   import { connect } from "http://127.0.0.1:8080/whence.js";
//   const client = connect("http://127.0.0.1:8080", { token });
//   await client.insert("trade", [{ issue: "A", price: 12.5 }]);              // when it is on stable storage
//   for await (const update of client.subscribe("SELECT issue, high FROM hourly", { key: "issue" }))
//     draw(update.rows);                                                      // also came, went, changed, position
//
// A connection that is lost comes back by itself: subscriptions go on from their positions, inserts that were not
// acknowledged are sent again under their numbers, and happen once. Rows are objects by column. BIGINT values beyond
// 2^53 are BigInt; DECIMAL, DATE, TIMESTAMP and INTERVAL are text.
//
// With `bounds: true` an update knows what values can still become:
//   const row = update.row("A");   // state, values, bounds.high = [80, null], isFinal, mayGo, mayCome, `${row}`
//   update.final;                  // the rows that have become final, also without changing

const VERSION = 1;
const MESSAGE_WAIT = 10; // seconds that a server is asked to wait for a message
const SOON = 10_000; // milliseconds after a loss in which connecting is tried again quickly

export class WhenceError extends Error {
  constructor(message, code = "WhenceError", details = {}) {
    super(message);
    Object.assign(this, { name: code, code, details });
  }
}

/** Connect to a served database. `token` is text, or a function (async, too) that gives one. */
export function connect(url, options = {}) {
  return new Client(url, options);
}

export class Client {
  constructor(url, { token = null, publisher = crypto.randomUUID(), onState = () => {}, WebSocket: Socket } = {}) {
    this.url = new URL("/v1/ws", url).href.replace(/^http/, "ws");
    Object.assign(this, { token, publisher, onState, position: null, who: null, limits: null });
    this._Socket = Socket ?? globalThis.WebSocket;
    this._seq = this._number = this._ids = 0;
    this._calls = new Map(); // what awaits an answer, by seq, in the order of sending
    this._subscriptions = new Map();
    this._closed = false;
    this._lostAt = Date.now();
    this._connect();
  }

  // -- verbs ---------------------------------------------------------------------------------------------------------

  /** Insert rows, arrays or objects by column; resolves to {count, position} when they are on stable storage. */
  insert(table, rows, { missing = "error" } = {}) {
    const list = Array.isArray(rows) && (rows.length === 0 || typeof rows[0] === "object") ? rows : [rows];
    const message = { type: "insert", table, missing, number: ++this._number };
    if (list.length && !Array.isArray(list[0])) {
      message.columns = [...new Set(list.flatMap(Object.keys))];
      message.rows = list.map((row) => message.columns.map((name) => plain(row[name])));
    } else {
      message.rows = list.map((row) => row.map(plain));
    }
    return this._ask(message, { again: true });
  }

  /** Answer a SELECT; resolves to rows. `atLeast` is a position that must have been reached. */
  async query(sql, params = null, { atLeast = null } = {}) {
    const args = { sql };
    if (params !== null) args.params = params;
    if (atLeast !== null) args.at_least = atLeast;
    return rowsOf(await this.call("query", args));
  }

  /** Read a table or view, or the rows with some values. */
  async read(name, where = {}, { atLeast = null } = {}) {
    const args = { name, where };
    if (atLeast !== null) args.at_least = atLeast;
    return rowsOf(await this.call("read", args));
  }

  /** Call any verb of the server, such as why, what_if, delete, update, transaction or execute. */
  call(verb, args = {}, { onProgress = null, signal = null } = {}) {
    const reads = !["execute", "delete", "update", "transaction", "insert", "subscribe", "advance", "flush"].includes(verb);
    const answer = this._ask({ type: "call", verb, args }, { again: reads, onProgress });
    const seq = this._seq;
    signal?.addEventListener("abort", () => {
      if (this._calls.has(seq)) this._send({ type: "cancel", seq });
    });
    return answer;
  }

  /** Follow a query, a name of a view, or an object of names and queries that move together. Iterate over the updates
   *  with `for await`, or give `onUpdate`. Options: params, have, key, every (seconds), why, everyChange, ordered,
   *  bounds. */
  subscribe(queries, options = {}) {
    const subscription = new Subscription(this, ++this._ids, queries, options);
    this._subscriptions.set(subscription.id, subscription);
    if (this._ready) this._send(subscription.message());
    return subscription;
  }

  /** Subscribe to a template: resolves to a subscription with `number`, its id, and `cancel()`. Options as above. */
  async subscribeTo(template, parameters, options = {}) {
    const { id } = await this.call("subscribe", { template, parameters });
    const subscription = this.subscribe(`${template}#${id}`, options);
    subscription.number = id;
    subscription.cancel = async () => {
      subscription.close();
      await this.call("delete", { table: template, key: id });
    };
    return subscription;
  }

  /** The messages of a template from now on, for a network that routes by content; iterate with `for await`. A
   *  rectangle has epoch, sign, value, inner, outer, key, strict and `reaches(low, high, key)`, a contour (of several
   *  ranges) outside in place of outer and `reaches([[low, high], …], key)`, a row epoch, sign and row.
   *  `after` is the position of messages that were read before. */
  async messages(template, { after = null } = {}) {
    const messages = new Messages(this, template, after);
    if (after === null) await messages.take(0);
    return messages;
  }

  /** Go on with another token of the same user, without connecting again. */
  renew(token) {
    this.token = token;
    this._send({ type: "renew", token });
  }

  close() {
    this._closed = true;
    clearTimeout(this._timer);
    this._socket?.close(1000);
    this._fail(new WhenceError("the client was closed", "DisconnectedError"));
    for (const subscription of [...this._subscriptions.values()]) subscription.close();
  }

  // -- the connection ------------------------------------------------------------------------------------------------

  async _connect() {
    this._ready = false;
    this._lastInsert = null;
    const socket = (this._socket = new this._Socket(this.url));
    socket.onmessage = ({ data }) => this._receive(JSON.parse(data));
    let over = false;
    const end = (code, reason) => {
      if (!over && socket === this._socket) this._lost(code, reason);
      over = true;
    };
    socket.onclose = ({ code, reason }) => end(code, reason);
    socket.onerror = () => socket.readyState === 1 || setTimeout(end, 0, 1006, ""); // some tell of no close then
    socket.onopen = async () => {
      try {
        const token = typeof this.token === "function" ? await this.token() : this.token;
        socket.send(JSON.stringify({ type: "hello", version: VERSION, token, publisher: this.publisher }));
      } catch (error) {
        socket.close(1000);
      }
    };
  }

  _lost(code, reason) {
    const was = this._ready;
    this._ready = false;
    if (this._closed) return;
    if (code === 4401 || code === 1008) {
      this._closed = true;
      const error = new WhenceError(reason || "refused", code === 4401 ? "AuthenticationError" : "ForbiddenError");
      this._fail(error);
      for (const subscription of [...this._subscriptions.values()]) subscription._end(error);
      this.onState("refused", error);
      return;
    }
    if (was) this._lostAt = Date.now();
    for (const [seq, call] of this._calls) {
      if (call.sent && !call.again) {
        this._calls.delete(seq);
        call.reject(new WhenceError("the connection was lost; the outcome is not known", "DisconnectedError"));
      }
    }
    this.onState("lost", reason);
    const pause = was ? 0 : Date.now() - this._lostAt < SOON ? 250 : 5000;
    this._timer = setTimeout(() => this._connect(), 20 + Math.random() * pause);
  }

  _ask(message, { again, onProgress = null }) {
    message.seq = ++this._seq;
    return new Promise((resolve, reject) => {
      if (this._closed) return reject(new WhenceError("the client was closed", "DisconnectedError"));
      this._calls.set(message.seq, { message, resolve, reject, again, onProgress, sent: this._ready });
      if (this._ready) this._send(message);
    });
  }

  _send(message) {
    if (this._socket.readyState !== 1) return;
    if (message.type === "insert") {
      message.awaiting = Math.min(...[...this._calls.values()].map((c) => c.message.number ?? Infinity));
      message.after = this._lastInsert; // so that the server sees if one is missing
      this._lastInsert = message.number;
    }
    this._socket.send(JSON.stringify(message));
  }

  _fail(error) {
    for (const call of this._calls.values()) call.reject(error);
    this._calls.clear();
  }

  _receive(message) {
    const subscription = this._subscriptions.get(message.id);
    const call = this._calls.get(message.seq);
    switch (message.type) {
      case "welcome":
        this._ready = true;
        Object.assign(this, { who: message.who, limits: message.limits });
        for (const waiting of this._calls.values()) {
          waiting.sent = true;
          this._send(waiting.message);
        }
        for (const each of this._subscriptions.values()) this._send(each.message());
        this.onState("connected", message.who);
        break;
      case "done":
        this.position = message.at;
        this._answer(message.seq, { count: message.count, position: message.at, repeated: message.repeated ?? false });
        break;
      case "result":
        this._answer(message.seq, message.value);
        break;
      case "progress":
        call?.onProgress?.(message.what, message.done, message.total);
        break;
      case "error": {
        const error = new WhenceError(message.message, message.code, message.details);
        if (call) {
          this._calls.delete(message.seq);
          call.reject(error);
        }
        if (subscription && message.final) subscription._end(error);
        else if (subscription) for (const { reject } of subscription._wanted.splice(0)) reject(error);
        break;
      }
      case "expiring":
        if (typeof this.token === "function") {
          Promise.resolve(this.token()).then((token) => this._send({ type: "renew", token }), () => {});
        }
        this.onState("expiring", message.at);
        break;
      default:
        subscription?._receive(message);
    }
  }

  _answer(seq, value) {
    const call = this._calls.get(seq);
    this._calls.delete(seq);
    call?.resolve(value);
  }
}

/** The updates of a subscription: net changes, each true at its position. An update that is not fetched yet takes in
 *  those that follow it, unless `everyChange` is asked for. */
export class Subscription {
  constructor(client, id, queries, options) {
    const texts = typeof queries === "string" ? { rows: queries } : queries;
    Object.assign(this, { client, id, names: Object.keys(texts), queries: Object.values(texts), options });
    this.position = options.have ?? null;
    this.parts = this.names.map(() => new Rows(options.have == null));
    this.knows = []; // per query: the key, and whether rows that went may come again
    this.coming = {}; // per query: which rows may still come
    this._pending = [];
    this._waiting = [];
    this._lostRange = null;
    this._wanted = [];
  }

  message() {
    const { params = null, every = null, why = false, everyChange = false, ordered = false } = this.options;
    const { id, queries, position } = this;
    const bounds = this.options.bounds ? "values" : false;
    return { type: "subscribe", id, queries, params, have: position, every, why, every_change: everyChange, bounds, ordered };
  }

  /** The rows as of the last update, of the first query. */
  get rows() {
    return this.parts[0].list();
  }

  /** Resolves when the rows are as of a position, such as that of an insert, or later. */
  waitFor(position) {
    // A position of another era is asked for: an older copy of the folder may have taken its place.
    const isReached = this.position !== null && eraOf(this.position) === eraOf(position);
    if (isReached && epochOf(this.position) >= epochOf(position)) return Promise.resolve();
    return new Promise((resolve, reject) => {
      this._wanted.push({ position, resolve, reject });
      this.client._send({ type: "wait", id: this.id, at: position });
    });
  }

  close() {
    if (this.client._subscriptions.delete(this.id)) this.client._send({ type: "unsubscribe", id: this.id });
    this._end(null);
  }

  [Symbol.asyncIterator]() {
    return {
      next: () => this._next(),
      return: async () => {
        this.close();
        return { done: true, value: undefined };
      },
    };
  }

  _next() {
    if (this._pending.length) return Promise.resolve({ done: false, value: this._pending.shift() });
    if (this._error) return Promise.reject(this._error);
    if (this._ended) return Promise.resolve({ done: true, value: undefined });
    return new Promise((resolve, reject) => this._waiting.push({ resolve, reject }));
  }

  _receive(message) {
    if (message.type === "subscribed") {
      this.schemas = message.parts;
      this.knows = message.knowledge ?? [];
      this._move(message.horizons);
      for (const { position } of this._wanted) this.client._send({ type: "wait", id: this.id, at: position });
    } else if (message.type === "lost") {
      this._lostRange = [this._lostRange?.[0] ?? message.since, message.at];
    } else if (message.type === "state") {
      if (message.first) {
        [this._chunks, this._chunkCount] = [this.names.map(() => []), 0];
        this._chunkHorizons = message.horizons ?? {};
      }
      if (!this._chunks) return;
      if ((message.chunk ?? 0) !== this._chunkCount++) {
        this._chunks = null; // one is missing, or came twice: ask for the state
        this._askAgain();
        return;
      }
      if (message.columns) this._chunks[message.part].push(...this._read(message.part, message.columns, message));
      if (message.last) {
        this.coming = {};
        this._move(this._chunkHorizons);
        const changes = this.parts.map((part, i) => part.replace(this._chunks[i]));
        this._chunks = null;
        this._tell(message, changes, message.reason ?? "begin");
      }
    } else if (message.type === "update") {
      if (this.position === null || placeOf(message.since) !== placeOf(this.position)) {
        this._askAgain(); // a message is missing
        return;
      }
      if (message.since === message.at) {
        this._reached(message.at); // the answer to a wait for what was told already
        return;
      }
      this._move(message.horizons);
      const changes = message.parts.map((change, i) => {
        const went = change?.went ? this._read(i, change.went) : [];
        const came = change?.came ? this._read(i, change.came, change) : [];
        this.parts[i].apply(went, came);
        const closed = change?.closed ? this._read(i, change.closed) : [];
        return { went, came, closed: closed.map((row) => this.parts[i].close(row)) };
      });
      this._tell(message, changes, "");
    }
  }

  /** Note by query which rows may still come; keys that were closed are told once. */
  _move(horizons) {
    for (const [place, { comes, ways, closed = {} }] of Object.entries(horizons ?? {})) {
      const known = { ...this.coming[place]?.closed };
      for (const [use, keys] of Object.entries(closed)) {
        known[use] = new Set([...(known[use] ?? []), ...keys.map((key) => JSON.stringify(key.map(String)))]);
      }
      this.coming[place] = { comes, ways, closed: known };
    }
  }

  _reached(at, update) {
    this._wanted = this._wanted.filter(({ position, resolve }) => {
      if (epochOf(at) < epochOf(position)) return true;
      resolve(update);
      return false;
    });
  }

  _askAgain() {
    this.position = null;
    this.client._send({ type: "unsubscribe", id: this.id });
    this.client._send(this.message());
  }

  _read(part, columns, { bounds = null, states = null } = {}) {
    const schema = this.schemas[part];
    return Array.from({ length: columns[0]?.length ?? 0 }, (_, row) => {
      const found = {};
      schema.forEach(([name, type], i) => (found[name] = value(columns[i][row], type)));
      if (states) {
        const known = {};
        schema.forEach(([name, type], i) => {
          const pair = bounds?.[i];
          known[name] = pair ? pair.map((ends) => value(ends[row], type)) : [found[name], found[name]];
        });
        know(found, states[row], known);
      }
      return found;
    });
  }

  _tell(message, changes, restarted) {
    this.position = message.at;
    const update = new Update(this, message, changes, restarted);
    this._lostRange = null;
    this._reached(message.at, update);
    this.options.onUpdate?.(update);
    const waiting = this._waiting.shift();
    if (waiting) {
      waiting.resolve({ done: false, value: update });
    } else if (!this.options.onUpdate) {
      const last = this._pending.at(-1);
      if (last && !this.options.everyChange) last._takeIn(update);
      else this._pending.push(update);
    }
  }

  _end(error) {
    this.client._subscriptions.delete(this.id);
    this._ended = true;
    this._error ??= error;
    for (const { resolve, reject } of this._waiting.splice(0)) {
      error ? reject(error) : resolve({ done: true, value: undefined });
    }
    for (const { reject } of this._wanted.splice(0)) reject(error ?? new WhenceError("closed", "DisconnectedError"));
    if (error) this.options.onError?.(error);
  }
}

class Update {
  constructor(subscription, { at, time = 0, waiting_for }, changes, restarted) {
    const parts = changes.map((change, i) => new Part(subscription, i, change, time));
    this.position = at;
    this.time = time;
    this.restarted = restarted;
    this.lost = subscription._lostRange;
    for (const part of parts) part._lost = this.lost !== null;
    this.waitingFor = Object.entries(waiting_for ?? {}).map(([source, [url, since]]) => ({ source, url, since }));
    this.columns = subscription.schemas[0].map(([name]) => name);
    this.parts = Object.fromEntries(subscription.names.map((name, i) => [name, parts[i]]));
  }

  get _first() {
    return Object.values(this.parts)[0];
  }
  get came() {
    return this._first.came;
  }
  get went() {
    return this._first.went;
  }
  get rows() {
    return this._first.rows;
  }
  get changed() {
    return this._first.changed;
  }
  get final() {
    return this._first.final;
  }

  /** With `bounds`: what is known of a row, given its key, or values by column. */
  row(key) {
    return this._first.row(key);
  }

  /** Become the net change of this update and one that follows it. */
  _takeIn(later) {
    for (const [name, part] of Object.entries(later.parts)) this.parts[name]._takeIn(part);
    this.position = later.position;
    this.time = later.time;
    this.restarted ||= later.restarted;
    this.lost ??= later.lost;
    this.columns = later.columns;
  }
}

class Part {
  constructor(subscription, place, { went, came, closed = [] }, time) {
    const rows = subscription.parts[place];
    const { key = subscription.knows[place]?.key ?? [] } = subscription.options;
    Object.assign(this, { went, came, _rows: rows, _key: [key].flat(), _later: null, _time: time });
    Object.assign(this, { _types: Object.fromEntries(subscription.schemas[place]), _closed: closed });
    Object.assign(this, { _returns: subscription.knows[place]?.returns ?? true, _coming: subscription.coming[place] });
    if (rows.last) rows.last._later = this;
    rows.last = this;
    if (subscription.options.bounds) for (const row of went) rows.note(row);
  }

  /** With `bounds`: the rows that have become final since the update before, also without changing. */
  get final() {
    return [...this.came.filter((row) => row[KNOWN]?.state === "final"), ...this._closed];
  }

  /** With `bounds`: what is known of a row, given its key, or values by column. */
  row(key) {
    const values = [key].flat();
    const given = key !== null && typeof key === "object" && !Array.isArray(key) && !(key instanceof Date)
      ? key
      : Object.fromEntries(this._key.map((name, i) => [name, values[i]]));
    const names = Object.keys(given);
    if (!names.length) throw new WhenceError("no key is known: give values by column, or subscribe with key", "DataError");
    const matches = (row) => names.every((name) => String(row[name]) === String(plain(given[name])));
    const found = new Map(this.rows.filter(matches).map((row) => [keyOf(row), row]));
    if (found.size > 1) throw new WhenceError(`${found.size} rows have this key: name more columns`, "DataError");
    const columns = Object.keys(this._types);
    if (found.size) {
      const [row] = found.values();
      const { state = "may go", bounds = {} } = row[KNOWN] ?? {};
      const known = Object.fromEntries(columns.map((name) => [name, bounds[name] ?? [null, null]]));
      return new KnownRow("present", row, given, known, state === "final", state === "may go", false, this._time);
    }
    const comes = this._coming?.ways.some((way) => this._allows(way, given)) ?? true;
    const wasThere = this._rows.gone.some(matches);
    const mayCome = comes && (this._returns || !wasThere);
    const state = this._lost && mayCome ? "lost" : wasThere ? "withdrawn" : mayCome ? "may come" : "finally absent";
    const unbound = Object.fromEntries(columns.map((name) => [name, [null, null]]));
    return new KnownRow(state, null, given, unbound, !mayCome, false, mayCome, this._time);
  }

  /** Whether a row with some values can come in one of the ways in which rows can. */
  _allows({ within, closes: [use, ...columns] = [] }, given) {
    if (columns.length && columns.every((name) => name in given)) {
      const key = JSON.stringify(columns.map((name) => String(plain(given[name]))));
      if (this._coming.closed[use]?.has(key)) return false;
    }
    return Object.entries(within).every(([name, [low, high, mayBeNull]]) => {
      if (!(name in given)) return true;
      const [value, type] = [plain(given[name]), this._types[name]];
      if (value === null) return mayBeNull;
      return !(low !== null && isLess(value, low, type)) && !(high !== null && isLess(high, value, type));
    });
  }

  /** The state that the update leaves, also when later ones have come. */
  get rows() {
    const rows = this._rows.copy();
    const later = [];
    for (let at = this._later; at; at = at._later) later.push(at);
    for (const { went, came } of later.reverse()) rows.apply(came, went);
    return rows.list();
  }

  /** With `key`: per key that changed, {key, old, new}. */
  get changed() {
    const found = new Map();
    const of = (row) => JSON.stringify(this._key.map((name) => String(row[name])));
    const note = (row, side) => {
      const key = this._key.length === 1 ? row[this._key[0]] : this._key.map((name) => row[name]);
      found.set(of(row), { key, old: null, new: null, ...found.get(of(row)), [side]: row });
    };
    for (const row of this.went) note(row, "old");
    for (const row of this.came) note(row, "new");
    return [...found.values()];
  }

  _takeIn(later) {
    const net = new Rows(false);
    net.apply([], this.came);
    net.apply(this.went, []);
    net.apply(later.went, later.came);
    this.came = net.list();
    this.went = net.list(-1);
    const told = new Set(this.came.map(keyOf));
    this._closed = [...this._closed, ...later._closed].filter((row) => !told.has(keyOf(row)));
    Object.assign(this, { _time: later._time, _coming: later._coming, _returns: later._returns });
    this._later = later._later;
    if (this._rows.last === later) this._rows.last = this;
  }
}

/** Rows with counts. Those below zero are allowed where the rows at the beginning are not known. */
class Rows {
  constructor(known) {
    this.known = known;
    this.counts = new Map();
    this.last = null;
    this.gone = []; // with bounds: the last rows that went
  }

  /** Remember a row that went. */
  note(row) {
    this.gone.push(row);
    if (this.gone.length > MOST_GONE) this.gone.splice(0, MOST_GONE / 2);
  }

  /** Note that a row is final, and return it. */
  close(row) {
    const there = this.counts.get(keyOf(row))?.row ?? row;
    know(there, "final", Object.fromEntries(Object.entries(there).map(([name, held]) => [name, [held, held]])));
    return there;
  }

  apply(went, came) {
    for (const row of came) this._add(row, 1);
    for (const row of went) this._add(row, -1);
  }

  _add(row, sign) {
    const key = keyOf(row);
    const there = this.counts.get(key);
    const count = (there?.count ?? 0) + sign;
    if (count === 0) this.counts.delete(key);
    else this.counts.set(key, { row: sign < 0 && there ? there.row : row, count });
  }

  replace(rows) {
    const before = this.counts;
    this.counts = new Map();
    this.known = true;
    this.apply([], rows);
    const net = new Rows(false);
    for (const { row, count } of this.counts.values()) for (let i = 0; i < count; i++) net._add(row, 1);
    for (const { row, count } of before.values()) for (let i = 0; i < count; i++) net._add(row, -1);
    return { came: net.list(), went: net.list(-1) };
  }

  list(sign = 1) {
    const found = [];
    for (const { row, count } of this.counts.values()) for (let i = 0; i < count * sign; i++) found.push(row);
    return found;
  }

  copy() {
    const found = new Rows(this.known);
    found.counts = new Map(this.counts);
    return found;
  }
}

/** The messages of a template, asked for by position: none is lost with a connection. */
export class Messages {
  constructor(client, template, position) {
    Object.assign(this, { client, template, position, _closed: false });
  }

  /** Resolves to the messages since the last call; waits for one for so many seconds at most. */
  async take(wait = 0) {
    const args = { template: this.template, wait };
    if (this.position !== null) args.after = this.position;
    const { columns, rows, position } = await this.client.call("messages", args);
    this.position = position;
    return messagesOf(columns, rows);
  }

  /** End the iteration, when the server has answered. */
  close() {
    this._closed = true;
  }

  async *[Symbol.asyncIterator]() {
    while (!this._closed && !this.client._closed) yield* await this.take(MESSAGE_WAIT);
  }
}

/** A new answer of all ranges that contain `inner` and neither end of `outer`. */
export class RectangleMessage {
  constructor(epoch, sign, value, inner, outer, key, strict, type) {
    Object.assign(this, { epoch, sign, value, inner, outer, key, strict });
    Object.defineProperty(this, "_type", { value: type }); // of the ends
  }

  /** Whether a range has the new answer; null is no bound. */
  reaches(low, high, key = []) {
    const holds = (end, isLow) => {
      const [bound, strict] = isLow ? [low, this.strict[0]] : [high, this.strict[1]];
      if (bound === null || bound === undefined) return true;
      if (isLess(bound, end, this._type)) return isLow;
      return isLess(end, bound, this._type) ? !isLow : !strict;
    };
    return (
      keyOf(key) === keyOf(this.key) &&
      holds(this.inner[0], true) &&
      holds(this.inner[1], false) &&
      !(this.outer[0] !== null && holds(this.outer[0], true)) &&
      !(this.outer[1] !== null && holds(this.outer[1], false))
    );
  }
}

/** A new answer of all boxes that contain `inner` and none of the points `outside`. */
export class ContourMessage {
  constructor(epoch, value, inner, outside, key, strict, types) {
    Object.assign(this, { epoch, value, inner, outside, key, strict });
    Object.defineProperty(this, "_types", { value: types }); // of the dimensions
  }

  /** Whether a box, an array of [low, high], has the new answer; null is no bound. */
  reaches(ranges, key = []) {
    const holds = (point) =>
      ranges.every(([low, high], i) => {
        const less = (a, b) => isLess(a, b, this._types[i]);
        const isAbove = low == null || less(low, point[i]) || (!this.strict[i][0] && !less(point[i], low));
        return isAbove && (high == null || less(point[i], high) || (!this.strict[i][1] && !less(high, point[i])));
      });
    const [low, high] = [0, 1].map((side) => this.inner.map((ends) => ends[side]));
    return keyOf(key) === keyOf(this.key) && holds(low) && holds(high) && !this.outside.some(holds);
  }
}

/** The messages that rows are (`subscribe/rectangles.py` has the columns). */
function messagesOf(columns, rows) {
  if (!columns[2]?.[0].startsWith("inner_low:")) return rows.map((row) => messageOf(columns, row));
  const keys = columns.filter(([name]) => name.startsWith("key:")).length;
  const last = columns.length - keys - 1;
  const places = Array.from({ length: (last - 2) / 4 }, (_, i) => 2 + 4 * i);
  const found = [];
  for (const row of rows) {
    const values = columns.map(([, type], i) => value(row[i], type));
    if (Number(values[1]) === 0) {
      found.at(-1).outside.push(places.map((i) => values[i])); // after the contour that it is outside of
      continue;
    }
    const inner = places.map((i) => values.slice(i, i + 2));
    const strict = places.map((i) => values.slice(i + 2, i + 4).map(Boolean));
    const types = places.map((i) => columns[i][1]);
    found.push(new ContourMessage(Number(values[0]), values.at(-1), inner, [], values.slice(last, -1), strict, types));
  }
  return found;
}

/** The message that a row is. */
function messageOf(columns, row) {
  const values = columns.map(([, type], i) => value(row[i], type));
  const [epoch, sign] = values.map(Number);
  const start = columns.findIndex(([name]) => /^(row|key|value|values):/.test(name));
  const named = (prefix) => columns.flatMap(([name], i) => (i >= start && name.startsWith(prefix) ? [i] : []));
  if (columns[2]?.[0] !== "inner_low") {
    return { epoch, sign, row: Object.fromEntries(named("row:").map((i) => [columns[i][0].slice(4), values[i]])) };
  }
  const of = (prefix) => named(prefix).map((i) => values[i]);
  const told = named("values:").length ? of("values:") : of("value:")[0];
  const strict = values.slice(6, 8).map(Boolean);
  return new RectangleMessage(epoch, sign, told, values.slice(2, 4), values.slice(4, 6), of("key:"), strict, columns[2][1]);
}

/** What is known of one row: whether it is there, may come or go, and by column the bounds of its values. */
export class KnownRow {
  constructor(state, values, given, bounds, isFinal, mayGo, mayCome, time) {
    Object.assign(this, { state, values, bounds, isFinal, mayGo, mayCome, _given: given, _time: time });
  }

  /** By column what is known, in words: "= 80", "≥ 80", "4–6", "12.5 @ 10:32". */
  get texts() {
    const of = (name) => (this.values ? cellText(this.values[name], this.bounds[name], this._time) : name in this._given ? `= ${this._given[name]}` : "–");
    return Object.fromEntries(Object.keys(this.bounds).map((name) => [name, of(name)]));
  }

  toString() {
    const texts = this.texts;
    const shown = Object.keys(this.values ? this.bounds : this._given).map((name) => `${name} ${texts[name]}`);
    if (this.values) return shown.join(", ") + (this.isFinal ? "; final" : this.mayGo ? "; may go" : "");
    const words = {
      withdrawn: this.mayCome ? "withdrawn, may come again" : "withdrawn for good",
      "finally absent": "not there, and will not come",
      lost: "not there; what happened to it meanwhile is lost",
    };
    return `${shown.join(", ")}: ${words[this.state] ?? "not there, may come"}`;
  }
}

function cellText(held, [low, high], time) {
  const shown = held === null ? "NULL" : String(held);
  if (low !== null && low === high) return `= ${shown}`;
  if (typeof held !== "boolean") {
    if (low !== null && high !== null) return `${low}–${high}`;
    if (low !== null) return `≥ ${low}`;
    if (high !== null) return `≤ ${high}`;
  }
  return time > 0 ? `${shown} @ ${new Date(time / 1000).toISOString().slice(11, 16)}` : shown;
}

const KNOWN = Symbol("known");
const MOST_GONE = 10_000;
/** Note what is known of a row, beside its columns. */
const know = (row, state, bounds) => Object.defineProperty(row, KNOWN, { value: { state, bounds }, configurable: true });
const isLess = (a, b, type = "") => {
  if (type === "TEXT") return isTextLess(Array.from(String(a)), Array.from(String(b)));
  if (type === "INTEGER" || type === "BIGINT") return BigInt(a) < BigInt(b);
  if (type === "DOUBLE" || type.startsWith("DECIMAL")) return Number(a) < Number(b);
  return type.startsWith("TIMESTAMP") ? String(a).replace(" ", "T") < String(b) : a < b;
};
/** By code points, as the server orders texts. */
const isTextLess = (a, b) => {
  const at = a.findIndex((letter, i) => letter !== b[i]);
  return at < 0 ? a.length < b.length : at < b.length && a[at].codePointAt() < b[at].codePointAt();
};
const keyOf = (row) => JSON.stringify(Object.values(row), (_, v) => (typeof v === "bigint" ? `${v}n` : Number.isNaN(v) ? "NaN" : v));
const epochOf = (position) => Number(position.split(".").at(-1));
const eraOf = (position) => position.split(".").slice(0, 2).join(".");
/** The history and the epoch: an era may have ended there, and the next begun. */
const placeOf = (position) => `${position.split(".")[0]} ${epochOf(position)}`;
const SPECIAL = { NaN: NaN, Infinity: Infinity, "-Infinity": -Infinity };

/** A plain value as JavaScript has it. */
function value(given, type) {
  if (typeof given !== "string") return given;
  if (type === "BIGINT" || type === "INTEGER") return BigInt(given);
  return type === "DOUBLE" ? SPECIAL[given] : given;
}

/** A JavaScript value as a plain value. */
function plain(given) {
  if (given === undefined) return null;
  if (typeof given === "bigint") return given.toString();
  if (typeof given === "number" && !Number.isFinite(given)) return String(given);
  return given instanceof Date ? given.toISOString().replace("Z", "") : given;
}

/** The rows of an answer, as objects by column. */
function rowsOf({ columns, rows }) {
  return rows.map((row) => Object.fromEntries(columns.map(([name, type], i) => [name, value(row[i], type)])));
}
