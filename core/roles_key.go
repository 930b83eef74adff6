package core

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
)

// RoleKind is what a role leads.
type RoleKind string

// The kinds.
const (
	RoleCTO  RoleKind = "cto"  // a project
	RoleLead RoleKind = "lead" // a scope within a project
)

// RoleKey names a role (contract 4.1).
type RoleKey struct {
	ProjectID string
	Kind      RoleKind
	ScopeID   string // of a lead; "" for a cto
}

const (
	roleWirePrefix = "rk2."
	maxRoleWire    = 512
)

var scopePattern = regexp.MustCompile(`^scp_[A-Za-z0-9_-]{22}$`)

// ParseRoleKey reads a role's key from its JSON object. The checks come in the
// contract's order, so that two implementations refuse alike.
//
// Errors: ROLE_KEY_INVALID, ROLE_KEY_FIELD_UNSUPPORTED, PROJECT_ID_INVALID,
// ROLE_KIND_UNSUPPORTED, ROLE_SCOPE_FORBIDDEN, SCOPE_REQUIRED, SCOPE_ID_INVALID.
func ParseRoleKey(text json.RawMessage) (RoleKey, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil || fields == nil {
		return RoleKey{}, roleKeyError(CodeRoleKeyInvalid, "role_key must be an object")
	}
	for name := range fields {
		if name != "project_id" && name != "role_kind" && name != "scope_id" {
			return RoleKey{}, roleKeyError(CodeRoleKeyFieldUnsupported, "role_key takes project_id, role_kind and scope_id only")
		}
	}
	project, _ := jsonString(fields["project_id"])
	kind, _ := jsonString(fields["role_kind"])
	scope, isText := jsonString(fields["scope_id"])
	key := RoleKey{ProjectID: project, Kind: RoleKind(kind), ScopeID: scope}
	_, hasScope := fields["scope_id"]
	switch {
	case !projectPattern.MatchString(project):
		return RoleKey{}, roleKeyError(CodeProjectIDInvalid, "project_id must be prj_ and 22 characters of A-Za-z0-9_-")
	case key.Kind != RoleCTO && key.Kind != RoleLead:
		return RoleKey{}, roleKeyError(CodeRoleKindUnsupported, "role_kind must be cto or lead")
	case key.Kind == RoleCTO && hasScope:
		return RoleKey{}, roleKeyError(CodeRoleScopeForbidden, "a cto has no scope_id")
	case key.Kind == RoleLead && !isText:
		return RoleKey{}, roleKeyError(CodeScopeRequired, "a lead needs a scope_id")
	case key.Kind == RoleLead && !scopePattern.MatchString(scope):
		return RoleKey{}, roleKeyError(CodeScopeIDInvalid, "scope_id must be scp_ and 22 characters of A-Za-z0-9_-")
	}
	return key, nil
}

func roleKeyError(code Code, message string) *Error { return InvalidCode(code, "role_key", message) }

// JSON is the canonical object of the key: no spaces, its keys in one order.
func (k RoleKey) JSON() json.RawMessage {
	key := object{}
	key.put("project_id", quoted(k.ProjectID))
	key.put("role_kind", quoted(string(k.Kind)))
	if k.Kind == RoleLead {
		key.put("scope_id", quoted(k.ScopeID))
	}
	return key.encode()
}

// Wire is the key as one word: it names the role in addresses and lists.
func (k RoleKey) Wire() string {
	return roleWirePrefix + base64.RawURLEncoding.EncodeToString(k.JSON())
}

// Address is where messages for the role go.
func (k RoleKey) Address() string { return RoleAddressPrefix + k.Wire() }

// ParseRoleWire reads a key back from its wire form. There is one wire form of a
// key: any other text that would decode to it is refused, because the form is
// compared byte by byte everywhere.
//
// Errors: ROLE_KEY_WIRE_INVALID, ROLE_KEY_WIRE_PREFIX, ROLE_KEY_NON_CANONICAL
// and those of ParseRoleKey.
func ParseRoleWire(wire string) (RoleKey, error) {
	if len(wire) > maxRoleWire {
		return RoleKey{}, roleWireError(CodeRoleKeyWireInvalid, fmt.Sprintf("role_key_wire must be at most %d bytes", maxRoleWire))
	}
	rest, ok := bytes.CutPrefix([]byte(wire), []byte(roleWirePrefix))
	if !ok {
		return RoleKey{}, roleWireError(CodeRoleKeyWirePrefix, "role_key_wire must start with "+roleWirePrefix)
	}
	text, err := base64.RawURLEncoding.AppendDecode(nil, rest)
	if err != nil || len(text) == 0 || !json.Valid(text) {
		return RoleKey{}, roleWireError(CodeRoleKeyNonCanonical, "role_key_wire is not the wire form of a role key")
	}
	key, err := ParseRoleKey(text)
	if err != nil {
		return RoleKey{}, err
	}
	if key.Wire() != wire {
		return RoleKey{}, roleWireError(CodeRoleKeyNonCanonical, "role_key_wire is not the canonical wire form of its key")
	}
	return key, nil
}

func roleWireError(code Code, message string) *Error {
	return InvalidCode(code, "role_key_wire", message)
}

// ProjectWirePrefix is how the wire forms of a project's roles begin, and no
// others: 42 bytes of canonical JSON are 56 characters without a remainder.
func ProjectWirePrefix(projectID string) string {
	return roleWirePrefix + base64.RawURLEncoding.EncodeToString([]byte(`{"project_id":"`+projectID+`"`))
}
