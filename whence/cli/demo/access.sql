-- Who may see which folder? Groups are nested, roles are held by people or groups, grants and denials are inherited
-- down the folder tree, and a denial wins.

CREATE TABLE member  (principal TEXT, grp TEXT);
CREATE TABLE holds   (principal TEXT, role TEXT);
CREATE TABLE folder  (name TEXT PRIMARY KEY, parent TEXT);
CREATE TABLE granted (role TEXT, folder TEXT);
CREATE TABLE denied  (principal TEXT, folder TEXT);
CREATE TABLE person  (name TEXT PRIMARY KEY);

-- A person acts as himself and as every group he is in, directly or through other groups.
CREATE VIEW acts_as AS
  SELECT name AS person, name AS principal FROM person
  UNION
  SELECT acts_as.person, member.grp FROM acts_as JOIN member ON member.principal = acts_as.principal;

-- A folder is inside itself and inside everything its parent is inside.
CREATE VIEW inside AS
  SELECT name AS folder, name AS ancestor FROM folder
  UNION
  SELECT folder.name, inside.ancestor FROM folder JOIN inside ON folder.parent = inside.folder;

CREATE VIEW allowed AS
  SELECT DISTINCT acts_as.person, inside.folder
  FROM acts_as
  JOIN holds   ON holds.principal = acts_as.principal
  JOIN granted ON granted.role = holds.role
  JOIN inside  ON inside.ancestor = granted.folder;

CREATE VIEW forbidden AS
  SELECT DISTINCT acts_as.person, inside.folder
  FROM acts_as
  JOIN denied ON denied.principal = acts_as.principal
  JOIN inside ON inside.ancestor = denied.folder;

CREATE VIEW can_see AS
  SELECT person, folder FROM allowed
  EXCEPT
  SELECT person, folder FROM forbidden;

CREATE VIEW folders_seen AS
  SELECT person, COUNT(*) AS folders FROM can_see GROUP BY person;

INSERT INTO person VALUES ('ada'), ('bob'), ('eve');
INSERT INTO member VALUES ('ada', 'kernel'), ('bob', 'web'), ('eve', 'contractors'),
                          ('kernel', 'engineering'), ('web', 'engineering'), ('contractors', 'web');
INSERT INTO holds  VALUES ('engineering', 'developer'), ('ada', 'auditor');
INSERT INTO folder VALUES ('company', NULL), ('source', 'company'), ('source/web', 'source'),
                          ('source/kernel', 'source'), ('source/kernel/keys', 'source/kernel'),
                          ('books', 'company'), ('books/2026', 'books');
INSERT INTO granted VALUES ('developer', 'source'), ('auditor', 'books');
INSERT INTO denied  VALUES ('contractors', 'source/kernel');
