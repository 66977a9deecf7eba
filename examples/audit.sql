-- Who sees which document, and by what right? Groups and roles are nested, folders hand rights down, denials win.
--
--     whence sql examples/audit.sql

CREATE TABLE person   (name TEXT PRIMARY KEY);
CREATE TABLE member   (principal TEXT NOT NULL, grp TEXT NOT NULL);    -- a person or a group, in a group
CREATE TABLE holds    (principal TEXT NOT NULL, role TEXT NOT NULL);
CREATE TABLE implies  (role TEXT NOT NULL, other TEXT NOT NULL);       -- a holder of the role also has the other one
CREATE TABLE granted  (role TEXT NOT NULL, folder TEXT NOT NULL);
CREATE TABLE denied   (principal TEXT NOT NULL, folder TEXT NOT NULL);
CREATE TABLE folder   (name TEXT PRIMARY KEY, parent TEXT);
CREATE TABLE document (name TEXT PRIMARY KEY, folder TEXT NOT NULL);

CREATE VIEW acts_as AS
  SELECT name AS person, name AS principal FROM person
  UNION
  SELECT acts_as.person, member.grp FROM acts_as JOIN member ON member.principal = acts_as.principal;

CREATE VIEW has_role AS
  SELECT acts_as.person, holds.role FROM acts_as JOIN holds ON holds.principal = acts_as.principal
  UNION
  SELECT has_role.person, implies.other FROM has_role JOIN implies ON implies.role = has_role.role;

CREATE VIEW inside AS
  SELECT name AS folder, name AS ancestor FROM folder
  UNION
  SELECT folder.name, inside.ancestor FROM folder JOIN inside ON folder.parent = inside.folder;

CREATE VIEW allowed AS
  SELECT DISTINCT has_role.person, document.name AS document
  FROM has_role
  JOIN granted  ON granted.role = has_role.role
  JOIN inside   ON inside.ancestor = granted.folder
  JOIN document ON document.folder = inside.folder;

CREATE VIEW forbidden AS
  SELECT DISTINCT acts_as.person, document.name AS document
  FROM acts_as
  JOIN denied   ON denied.principal = acts_as.principal
  JOIN inside   ON inside.ancestor = denied.folder
  JOIN document ON document.folder = inside.folder;

CREATE VIEW sees AS
  SELECT person, document FROM allowed
  EXCEPT
  SELECT person, document FROM forbidden;
