package doctor

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/aws/smithy-go"
)

// Codes that S3 answers to a request that was signed for another region.
var wrongRegionCodes = []string{
	"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect",
}

// Explain puts what a newcomer has to do before an error of an endpoint. Errors
// that need no explanation come back as they are.
func Explain(err error, endpoint, region string) error {
	if err == nil {
		return nil
	}
	if advice := advice(err, endpoint, region); advice != "" {
		return fmt.Errorf("%s (%w)", advice, err)
	}
	return err
}

func advice(err error, endpoint, region string) string {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Sprintf("nothing answers at %s; start it, or point AWS_ENDPOINT_URL elsewhere", endpoint)
	}
	var answer smithy.APIError
	if !errors.As(err, &answer) {
		return ""
	}
	switch code := answer.ErrorCode(); {
	case isWrongRegion(code, answer.ErrorMessage()):
		return fmt.Sprintf("%s serves another region than %q, for which the request was signed; set AWS_REGION to the endpoint's", endpoint, region)
	case code == "ResourceNotFoundException", code == "NotFound", code == "NoSuchBucket":
		return fmt.Sprintf("%s has no such table or bucket in region %q; is AWS_REGION the one it was deployed to?", endpoint, region)
	case slices.Contains([]string{"UnrecognizedClientException", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSignatureException"}, code):
		return fmt.Sprintf("%s does not accept the credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to its own", endpoint)
	default:
		return ""
	}
}

func isWrongRegion(code, message string) bool {
	if slices.Contains(wrongRegionCodes, code) {
		return strings.Contains(message, "region") || code != "AuthorizationHeaderMalformed"
	}
	return code == "InvalidSignatureException" && strings.HasPrefix(message, "Credential should be scoped") &&
		strings.Contains(message, "region")
}
