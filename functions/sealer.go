package functions

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"

	"drawbridge/core"
)

// sealKeyBytes is the length of a key file: AES-256.
const sealKeyBytes = 32

// A keyFileSealer seals with AES-256-GCM under the key in a file. It is for a
// hub on one machine; on AWS the key is in KMS.
type keyFileSealer struct{ aead cipher.AEAD }

// OpenKeyFile returns the sealer of a key file, which it makes where there is
// none, readable by its owner only. It refuses one that others can read.
func OpenKeyFile(path string) (core.Sealer, error) {
	key, err := readKeyFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key, err = makeKeyFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open the key of credentials: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("open the key of credentials: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	return keyFileSealer{aead}, err
}

func readKeyFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s can be read by others: its mode must be 0600", path)
	}
	key, err := os.ReadFile(path)
	if err == nil && len(key) != sealKeyBytes {
		err = fmt.Errorf("%s holds %d bytes, not the %d of a key", path, len(key), sealKeyBytes)
	}
	return key, err
}

// makeKeyFile makes a key that is there whole or not at all: two processes that
// start at once end with the same one.
func makeKeyFile(path string) ([]byte, error) {
	key := make([]byte, sealKeyBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	draft, err := os.CreateTemp(filepath.Dir(path), ".credential-key-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(draft.Name()) }() // the link stays
	_, err = draft.Write(key)
	if err = errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(draft.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return readKeyFile(path)
}

// Seal puts a fresh nonce before what it encrypts.
func (s keyFileSealer) Seal(_ context.Context, plain []byte, context string) ([]byte, error) {
	nonce := make([]byte, s.aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return s.aead.Seal(nonce, nonce, plain, []byte(context)), nil
}

func (s keyFileSealer) Open(_ context.Context, sealed []byte, context string) ([]byte, error) {
	if len(sealed) < s.aead.NonceSize() {
		return nil, errors.New("sealed bytes are too short")
	}
	nonce, body := sealed[:s.aead.NonceSize()], sealed[s.aead.NonceSize():]
	return s.aead.Open(nil, nonce, body, []byte(context))
}

// noKey is the setting of a deployment without a key.
const noKey = "none"

// A kmsSealer has KMS seal and open. The context is part of what KMS
// authenticates, and stands in its audit trail.
type kmsSealer struct {
	client *kms.Client
	key    string
}

func newKMSSealer(cfg aws.Config, key string) core.Sealer {
	return kmsSealer{client: kms.NewFromConfig(cfg), key: key}
}

const sealContext = "human_request"

func (s kmsSealer) Seal(ctx context.Context, plain []byte, context string) ([]byte, error) {
	out, err := s.client.Encrypt(ctx, &kms.EncryptInput{
		KeyId: aws.String(s.key), Plaintext: plain, EncryptionContext: map[string]string{sealContext: context},
	})
	if err != nil {
		return nil, core.Wrap(core.CodeUnavailable, "the key service did not seal the credential; nothing was stored", err)
	}
	return out.CiphertextBlob, nil
}

func (s kmsSealer) Open(ctx context.Context, sealed []byte, context string) ([]byte, error) {
	out, err := s.client.Decrypt(ctx, &kms.DecryptInput{
		KeyId: aws.String(s.key), CiphertextBlob: sealed, EncryptionContext: map[string]string{sealContext: context},
	})
	if err != nil {
		return nil, core.Wrap(core.CodeUnavailable, "the key service did not open the credential", err)
	}
	return out.Plaintext, nil
}
