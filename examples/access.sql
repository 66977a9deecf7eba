-- Access control: nested groups, roles, folders, grants and denials. Who may do what, and where?
--
--     whence sql examples/access.sql

CREATE TABLE person     (name TEXT PRIMARY KEY, email TEXT);
CREATE TABLE member     (principal TEXT NOT NULL, grp TEXT NOT NULL);           -- a person or a group, in a group
CREATE TABLE role_grant (principal TEXT NOT NULL, role TEXT NOT NULL);
CREATE TABLE role_right (role TEXT NOT NULL, action TEXT NOT NULL);
CREATE TABLE role_scope (role TEXT NOT NULL, folder TEXT NOT NULL);
CREATE TABLE folder     (name TEXT PRIMARY KEY, parent TEXT);
CREATE TABLE denial     (principal TEXT NOT NULL, action TEXT NOT NULL, folder TEXT NOT NULL);

CREATE VIEW acts_as AS
  SELECT name AS person, name AS principal FROM person
  UNION
  SELECT acts_as.person, member.grp FROM acts_as JOIN member ON member.principal = acts_as.principal;

CREATE VIEW inside AS
  SELECT name AS folder, name AS ancestor FROM folder
  UNION
  SELECT folder.name, inside.ancestor FROM folder JOIN inside ON folder.parent = inside.folder;

CREATE VIEW allowed AS
  SELECT DISTINCT acts_as.person, role_right.action, inside.folder
  FROM acts_as
  JOIN role_grant ON role_grant.principal = acts_as.principal
  JOIN role_right ON role_right.role = role_grant.role
  JOIN role_scope ON role_scope.role = role_grant.role
  JOIN inside     ON inside.ancestor = role_scope.folder;

CREATE VIEW forbidden AS
  SELECT DISTINCT acts_as.person, denial.action, inside.folder
  FROM acts_as
  JOIN denial ON denial.principal = acts_as.principal
  JOIN inside ON inside.ancestor = denial.folder;

-- A denial wins.
CREATE VIEW may AS
  SELECT person, action, folder FROM allowed
  EXCEPT
  SELECT person, action, folder FROM forbidden;

CREATE VIEW lonely_folder AS
  SELECT name AS folder FROM folder WHERE name NOT IN (SELECT folder FROM may WHERE action = 'read');

CREATE VIEW busiest AS
  SELECT person, COUNT(*) AS rights FROM may GROUP BY person ORDER BY rights DESC LIMIT 5;
