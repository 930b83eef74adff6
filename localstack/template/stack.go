package template

// A Stack is where a template is deployed: what its pseudo parameters,
// generated names and parameters stand for.
type Stack struct {
	Name    string
	Region  string
	Account string
	// APIEndpoint is the base URL of the HTTP API.
	APIEndpoint string
	// Names holds physical names by logical id where they are not the generated
	// ones: the tables and buckets of a stack that AWS named.
	Names map[string]string
	// Parameters overrides defaults by name.
	Parameters map[string]string
}

// Local is the stack that the local runner makes: parameters keep their defaults.
func Local() Stack {
	return Stack{
		Name:        "drawbridge",
		Region:      "us-east-1",
		Account:     "000000000000",
		APIEndpoint: "http://127.0.0.1:27888",
	}
}

func (s Stack) pseudo(name string) (string, bool) {
	switch name {
	case "AWS::AccountId":
		return s.Account, true
	case "AWS::Partition":
		return "aws", true
	case "AWS::Region":
		return s.Region, true
	case "AWS::StackName":
		return s.Name, true
	case "AWS::URLSuffix":
		return "amazonaws.com", true
	default:
		return "", false
	}
}

func (s Stack) arn(service, resource string) string {
	return "arn:aws:" + service + ":" + s.Region + ":" + s.Account + ":" + resource
}
