package template

// ignoredTypes are resources that change nothing a handler or a client can see.
var ignoredTypes = []string{
	"AWS::CloudFormation::Stack", // alarms and a dashboard
	"AWS::Events::EventBus",
	"AWS::Logs::LogGroup",
	"AWS::S3::BucketPolicy",
	"AWS::SQS::Queue",
}

// The properties below are safeguards and operations of the real services. They
// have no counterpart in an endpoint that runs on a laptop.
var (
	ignoredOfTable = []string{
		"DeletionProtectionEnabled", "PointInTimeRecoverySpecification", "SSESpecification", "Tags",
	}
	ignoredOfBucket = []string{
		"BucketEncryption", "OwnershipControls", "PublicAccessBlockConfiguration",
		"Tags", "VersioningConfiguration",
	}
	// Throttling is the gateway's; its 429 is the one answer that no handler makes.
	ignoredOfHTTPAPI = []string{
		"AccessLogSettings", "DefaultRouteSettings", "Description", "FailOnWarnings", "Name", "Tags",
	}
	ignoredOfFunction = []string{
		"CodeUri", "Description", "EventInvokeConfig", "LoggingConfig",
		"ReservedConcurrentExecutions", "Tags",
	}
	ignoredOfRole      = []string{"AssumeRolePolicyDocument", "Description", "Tags"}
	ignoredOfSchedule  = []string{"DeadLetterConfig", "Description", "OmitName", "RetryPolicy"}
	ignoredOfResource  = []string{"DeletionPolicy", "DependsOn", "UpdateReplacePolicy"}
	ignoredOfParameter = []string{"ConstraintDescription", "Description", "NoEcho"}
	ignoredOfOutput    = []string{"Description", "Export"}
)
