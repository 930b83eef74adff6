// Package ddb keeps the hub in one DynamoDB table.
package ddb
