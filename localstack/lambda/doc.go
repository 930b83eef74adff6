// Package lambda runs the functions of a template as AWS Lambda does: every
// function in a process of its own, made from the one binary, with the environment
// that the template declares and nothing of its parent's, behind AWS's runtime
// interface emulator (github.com/aws/aws-lambda-runtime-interface-emulator).
//
//	client --> Pool --> Instance: emulator --> bootstrap --> DynamoDB, S3
//	             one invocation at a time          the endpoint in Runtime.Environment
//
// Tests use it to hold the binary that is deployed, rather than the handlers in
// their own process, against what they expect. What the emulator does not have is
// not proven by it: permissions (localstack's policy test stands for them), several
// instances of one function at once, and the gateway, for which package gateway
// stands.
//
// The tests are built with the tag rie and need the emulator and the binary; make
// rie provides both.
package lambda
