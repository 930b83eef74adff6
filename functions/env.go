package functions

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/core"
	"drawbridge/ddb"
	"drawbridge/s3queue"
)

// Version is the version of the hub, as health, status and the OpenAPI
// document tell it.
const Version = "0.1.0"

// The settings a function reads from its environment, which template.yaml
// sets. Region, credentials and AWS_ENDPOINT_URL are the SDK's own.
const (
	envTable       = "TABLE_NAME"
	envAccount     = "DRAWBRIDGE_ACCOUNT_ID"
	envCORSOrigins = "DRAWBRIDGE_CORS_ORIGINS"
	envLogLevel    = "AWS_LAMBDA_LOG_LEVEL"
	envBucket      = "BUCKET_NAME"
	envRetention   = "DRAWBRIDGE_MESSAGE_RETENTION_DAYS"
	envKey         = "DRAWBRIDGE_CREDENTIAL_KEY_ID"
	envBus         = "DRAWBRIDGE_EVENT_BUS"
	envRelay       = "DRAWBRIDGE_EVENT_RELAY"
)

// Settings say where a hub keeps its state and who may call it.
type Settings struct {
	Table       string
	Account     string        // the AWS account of the table; part of the store's fingerprint
	Bucket      string        // of the archive queue, and of payloads over 8 KB
	Retention   time.Duration // of settled messages; zero takes the usual one
	CORSOrigins []string
	Log         *slog.Logger

	// CredentialKey is the id of the KMS key that seals credentials, "" for none;
	// CredentialKeyFile a key file that is taken instead.
	CredentialKey     string
	CredentialKeyFile string
	// EventBus is the bus that job events are relayed to, "" for none.
	EventBus string
	// NewTables makes the client of DynamoDB; nil takes the SDK's.
	NewTables func(aws.Config) ddb.Client
}

// FromEnv builds the App of a deployed function: settings from getenv, clients
// from the SDK's default configuration. It makes no request.
func FromEnv(ctx context.Context, getenv func(string) string) (*App, error) {
	settings, err := SettingsFrom(getenv)
	if err != nil {
		return nil, err
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("load the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		return nil, errors.New("AWS_REGION is not set: it names the region of the hub's table")
	}
	return Open(ForLambda(cfg), settings)
}

// SettingsFrom reads the settings that the template puts into the environment of
// every function. Their log goes to the standard output.
func SettingsFrom(getenv func(string) string) (Settings, error) {
	s := Settings{
		Table:       getenv(envTable),
		Account:     getenv(envAccount),
		Bucket:      getenv(envBucket),
		CORSOrigins: SplitOrigins(getenv(envCORSOrigins)),
		Log:         NewLog(os.Stdout, getenv(envLogLevel)),
	}
	if key := getenv(envKey); key != noKey {
		s.CredentialKey = key
	}
	if getenv(envRelay) == relayOn {
		s.EventBus = getenv(envBus)
	}
	if s.Table == "" {
		return Settings{}, errors.New(envTable + " is not set: it names the hub's table")
	}
	if days := getenv(envRetention); days != "" {
		n, err := strconv.ParseInt(days, 10, 16)
		if err != nil || n < 1 {
			return Settings{}, errors.New(envRetention + " must be a whole number of days, at least 1")
		}
		s.Retention = time.Duration(n) * 24 * time.Hour
	}
	return s, nil
}

// Open builds an App over the clients of an AWS configuration. It makes no
// request.
func Open(cfg aws.Config, s Settings) (*App, error) {
	cfg.APIOptions = append(cfg.APIOptions[:len(cfg.APIOptions):len(cfg.APIOptions)], CountSpend)
	clock := core.SystemClock{}
	ids := core.NewIDs(clock, rand.Reader)
	store := ddb.Open(s.tables(cfg), ddb.Table{Name: s.Table, Region: cfg.Region, Account: s.Account})
	if err := store.KeepMessages(ddb.Messages{Retention: s.Retention, Payloads: ddb.PayloadBucket{Client: bucketClient(cfg), Name: s.Bucket}}); err != nil {
		return nil, err
	}
	sealer, err := s.sealer(cfg)
	if err != nil {
		return nil, err
	}
	hub := core.New(core.Config{
		Presence: store, Identity: store, Sweeps: store, Messages: store, Roles: store, Reflexion: store, Pipelines: store, Clock: clock, IDs: ids,
		Archive: s3queue.New(s3queue.Config{
			S3: bucketClient(cfg), Bucket: s.Bucket, Settings: core.DefaultArchiveSettings(), Clock: clock, IDs: ids,
		}),
		Humans: store, Schemas: Schemas{}, Sealer: sealer, Jobs: store, Relay: s.relay(cfg, store),
	})
	return New(Config{
		Hub: hub, Tokens: store, Clock: clock, IDs: ids, Log: s.Log, Version: Version, CORSOrigins: s.CORSOrigins,
	})
}

func (s Settings) tables(cfg aws.Config) ddb.Client {
	if s.NewTables != nil {
		return s.NewTables(cfg)
	}
	return dynamodb.NewFromConfig(cfg)
}

// sealer is what credentials are sealed with, nil where there is no key.
func (s Settings) sealer(cfg aws.Config) (core.Sealer, error) {
	switch {
	case s.CredentialKeyFile != "":
		return OpenKeyFile(s.CredentialKeyFile)
	case s.CredentialKey != "":
		return newKMSSealer(cfg, s.CredentialKey), nil
	}
	return nil, nil
}

// relay is what job events are relayed with, nil where they are not. The store
// keeps what is to be relayed only then.
func (s Settings) relay(cfg aws.Config, store *ddb.Store) core.EventRelay {
	if s.EventBus == "" {
		return nil
	}
	store.RelayEvents()
	return newBusRelay(cfg, s.EventBus)
}

// bucketClient addresses buckets by path where the endpoint is not AWS's own:
// local ones have no name for every bucket.
func bucketClient(cfg aws.Config) *s3.Client {
	return s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle = cfg.BaseEndpoint != nil || os.Getenv("AWS_ENDPOINT_URL") != "" || os.Getenv("AWS_ENDPOINT_URL_S3") != ""
	})
}

// Prewarm makes one small read, so that the first request finds a connection:
// name resolution, TLS and signing cost more than the request itself, and the
// time before the first invocation is not the client's. What it reads does not
// matter, and neither does whether the function may read it.
func (a *App) Prewarm(ctx context.Context) {
	_, _, err := a.auth.store.ReadToken(ctx, core.TokenHash(""))
	a.log.DebugContext(ctx, "prewarmed", slog.Bool("ok", err == nil))
}
