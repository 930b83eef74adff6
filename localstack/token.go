package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"drawbridge/core"
	"drawbridge/functions"
)

const (
	tokenVariable = "DRAWBRIDGE_TOKEN"
	tokenFile     = "token"
	// endpointFile tells where the embedded AWS answers of the hub that uses the
	// data folder.
	endpointFile = "aws-endpoint"
	// Only the user who starts the hub may read its token.
	tokenMode  = 0o600
	folderMode = 0o700
)

// A bootstrapToken holds every scope. It comes from the environment, from the
// file of an earlier start, or is new.
type bootstrapToken struct {
	value string
	// shell is how a shell writes the token without showing it.
	shell string
	// place tells the user where it is.
	place string
}

func findToken(folder string, getenv func(string) string) (bootstrapToken, error) {
	if value := getenv(tokenVariable); value != "" {
		if !isToken(value) {
			return bootstrapToken{}, fmt.Errorf("%s must be printable ASCII without spaces, at most %d characters", tokenVariable, functions.MaxToken)
		}
		return bootstrapToken{value, "$" + tokenVariable, "the environment variable " + tokenVariable}, nil
	}
	path := filepath.Join(folder, tokenFile)
	value, err := tokenIn(path)
	if errors.Is(err, fs.ErrNotExist) {
		value, err = newTokenIn(path)
	}
	if err != nil {
		return bootstrapToken{}, err
	}
	return bootstrapToken{value, "$(cat " + quote(path) + ")", path}, nil
}

// isToken tells whether the hub will find the value in an Authorization header.
func isToken(value string) bool {
	return len(value) <= functions.MaxToken && !strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' })
}

// tokenIn reads a token file and takes it away from everybody else.
func tokenIn(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	if info.Mode().Perm()&^tokenMode != 0 {
		if err := os.Chmod(path, tokenMode); err != nil {
			return "", fmt.Errorf("others can read the token in %s: %w", path, err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	switch value := strings.TrimSpace(string(text)); {
	case value == "":
		return "", fmt.Errorf("the token file %s is empty; delete it to get a new token", path)
	case !isToken(value):
		return "", fmt.Errorf("the token file %s holds something else than a token; delete it to get a new one", path)
	default:
		return value, nil
	}
}

// newTokenIn makes a token and writes it so that a crash leaves either no file or
// a whole one.
func newTokenIn(path string) (string, error) {
	value, err := core.NewToken(rand.Reader)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), folderMode); err != nil {
		return "", fmt.Errorf("make the data folder: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), tokenFile+"-*") // mode 0600
	if err != nil {
		return "", fmt.Errorf("write the token: %w", err)
	}
	defer os.Remove(f.Name()) // gone after the rename
	_, err = f.WriteString(value + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("write the token: %w", err)
	}
	return value, nil
}

// record makes the hub know the token. A token that has ended is not given new
// life by a start: whoever revoked it meant it.
func (b bootstrapToken) record(ctx context.Context, store core.TokenStore) error {
	hash, now := core.TokenHash(b.value), core.InstantOf(time.Now())
	fresh, err := store.CreateToken(ctx, core.Token{
		Hash:      hash,
		Name:      "bootstrap",
		Scopes:    []core.Scope{core.ScopeRead, core.ScopeAgent, core.ScopeOperator},
		CreatedAt: now,
	})
	if err != nil {
		return fmt.Errorf("record the token: %w", err)
	}
	if fresh {
		return nil
	}
	stands, found, err := store.ReadToken(ctx, hash)
	if err != nil {
		return fmt.Errorf("read the token's record: %w", err)
	}
	if state := stands.State(now); found && state != core.TokenActive {
		return fmt.Errorf("the token in %s is %s; take it away to get a new one", b.place, state)
	}
	return nil
}

// tellEndpoint leaves the address of the embedded AWS in the data folder, for
// the commands that cannot open the folder while the hub uses it.
func tellEndpoint(folder string, listener net.Listener) error {
	path := filepath.Join(folder, endpointFile)
	if err := os.WriteFile(path, []byte("http://"+reachable(listener.Addr())+"\n"), tokenMode); err != nil {
		return fmt.Errorf("write the address of the embedded AWS: %w", err)
	}
	return nil
}

// quote writes a path for a shell.
func quote(path string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-"
	if strings.ContainsFunc(path, func(r rune) bool { return !strings.ContainsRune(plain, r) }) {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}
