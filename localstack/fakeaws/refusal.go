package fakeaws

import (
	"fmt"
	"time"
)

// The refusals of the signature check, with AWS's code and status in each
// protocol: S3 says 403 or 400 by cause, DynamoDB's front end always 400.
// https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html

func noCredentials(p protocol) *failure {
	if p == awsJSON {
		return &failure{status: 400, code: "MissingAuthenticationTokenException", message: "Request is missing Authentication Token"}
	}
	return &failure{status: 403, code: "AccessDenied", message: "Access Denied"}
}

func unsupportedAlgorithm(p protocol) *failure {
	if p == awsJSON {
		return &failure{status: 400, code: "IncompleteSignatureException", message: "Unsupported AWS 'algorithm'; only AWS4-HMAC-SHA256 is supported"}
	}
	return &failure{status: 400, code: "InvalidRequest", message: "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256."}
}

func incomplete(p protocol, why string) *failure {
	if p == awsJSON {
		return &failure{status: 400, code: "IncompleteSignatureException", message: "The request signature does not conform to AWS standards: " + why}
	}
	return &failure{status: 400, code: "AuthorizationHeaderMalformed", message: "The authorization header is malformed; " + why}
}

func badQuery(why string) *failure {
	return &failure{status: 400, code: "AuthorizationQueryParametersError", message: why}
}

func noDate(p protocol) *failure {
	if p == awsJSON {
		return &failure{status: 400, code: "IncompleteSignatureException", message: "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header."}
	}
	return &failure{status: 403, code: "AccessDenied", message: "AWS authentication requires a valid Date or x-amz-date header"}
}

func unknownKey(p protocol, accessKey string) *failure {
	if p == awsJSON {
		return &failure{status: 400, code: "UnrecognizedClientException", message: "The security token included in the request is invalid."}
	}
	return &failure{status: 403, code: "InvalidAccessKeyId", message: "The AWS Access Key Id you provided does not exist in our records.",
		fields: []field{{"AWSAccessKeyId", accessKey}}}
}

// badScope refuses a credential scope. region is the right one where that is
// what is wrong: SDKs look for it in S3's answer.
func badScope(p protocol, c *claim, why, region string) *failure {
	if p == awsJSON {
		return &failure{status: 400, code: "InvalidSignatureException", message: "Credential should be scoped correctly: " + why}
	}
	f := &failure{status: 400, code: "AuthorizationHeaderMalformed", message: "The authorization header is malformed; " + why}
	if c.presigned {
		f = badQuery("Error parsing the X-Amz-Credential parameter; " + why)
	}
	if region != "" {
		f.fields = []field{{"Region", region}}
	}
	return f
}

func skewed(p protocol, requested string, signed, now time.Time) *failure {
	if p == restXML {
		return &failure{status: 403, code: "RequestTimeTooSkewed", message: "The difference between the request time and the current time is too large.",
			fields: []field{{"RequestTime", requested}, {"ServerTime", now.UTC().Format(time.RFC3339)}, {"MaxAllowedSkewMilliseconds", itoa(maxSkew.Milliseconds())}}}
	}
	message := "Signature expired: %s is now earlier than %s (%s - 15 min.)"
	bound := now.Add(-maxSkew)
	if signed.After(now) {
		message = "Signature not yet current: %s is still later than %s (%s + 15 min.)"
		bound = now.Add(maxSkew)
	}
	return &failure{status: 400, code: "InvalidSignatureException",
		message: fmt.Sprintf(message, requested, bound.UTC().Format(amzTime), now.UTC().Format(amzTime))}
}

func unsignedHeader(p protocol, name string) *failure {
	if p == awsJSON {
		return &failure{status: 400, code: "InvalidSignatureException", message: "'" + name + "' must be a 'SignedHeader' in the AWS Authorization."}
	}
	return &failure{status: 403, code: "AccessDenied", message: "There were headers present in the request which were not signed",
		fields: []field{{"HeadersNotSigned", name}}}
}

func mismatch(p protocol, c *claim, canonicalRequest, stringToSign string) *failure {
	const message = "The request signature we calculated does not match the signature you provided. Check your "
	if p == awsJSON {
		return &failure{status: 400, code: "InvalidSignatureException",
			message: message + "AWS Secret Access Key and signing method. Consult the service documentation for details."}
	}
	return &failure{status: 403, code: "SignatureDoesNotMatch", message: message + "key and signing method.", fields: []field{
		{"AWSAccessKeyId", c.accessKey}, {"StringToSign", stringToSign}, {"SignatureProvided", c.signature}, {"CanonicalRequest", canonicalRequest}}}
}
