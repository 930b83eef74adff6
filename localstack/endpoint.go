package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

const (
	endpointVariable = "AWS_ENDPOINT_URL"
	// What local servers take when nothing else is configured.
	localRegion    = "us-east-1"
	localAccessKey = "test"
	localSecretKey = "testtest"
)

// An endpoint speaks the AWS protocols somewhere else than in this process.
type endpoint struct {
	url   string
	local bool // on this machine
	cfg   aws.Config
}

func openEndpoint(ctx context.Context, rawURL string, getenv func(string) string) (endpoint, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return endpoint{}, fmt.Errorf("the endpoint %q is not a URL such as http://127.0.0.1:4566", rawURL)
	}
	e := endpoint{url: rawURL, local: isLocal(u.Hostname())}
	var choices []func(*config.LoadOptions) error
	if e.local && getenv("AWS_ACCESS_KEY_ID") == "" && getenv("AWS_PROFILE") == "" {
		choices = append(choices, config.WithCredentialsProvider(
			credentials.NewStaticCredentialsProvider(localAccessKey, localSecretKey, "")))
	}
	if e.cfg, err = config.LoadDefaultConfig(ctx, choices...); err != nil {
		return endpoint{}, fmt.Errorf("load the AWS configuration: %w", err)
	}
	e.cfg.BaseEndpoint = aws.String(rawURL)
	if e.local {
		e.cfg.Region = cmp.Or(e.cfg.Region, localRegion)
	}
	if e.cfg.Region == "" {
		return endpoint{}, errors.New("AWS_REGION is not set: requests are signed for a region, and it must be the endpoint's")
	}
	return e, nil
}

// isLocal tells whether a host is this machine. What is made there surprises
// nobody's account.
func isLocal(host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

func (e endpoint) dynamoDB() *dynamodb.Client { return dynamodb.NewFromConfig(e.cfg) }
func (e endpoint) s3() *s3.Client             { return newS3(e.cfg) }

// newS3 addresses buckets by path: local servers have no names for them.
func newS3(cfg aws.Config) *s3.Client {
	return s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
}
