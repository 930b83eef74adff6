"""Translates template.yaml as CloudFormation would and checks what comes out.

usage: python3 infra/check.py TEMPLATE [OUTPUT.json]

It needs the Python package aws-sam-translator and no network: code and nested
templates are replaced as `sam package` does, and managed policies are not looked
up. It exits 1 with a list of what is wrong. The translated template is written to
OUTPUT.json.
"""
import json
import os
import sys

os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")

from samtranslator.translator.transform import transform  # noqa: E402
from samtranslator.yaml_helper import yaml_parse  # noqa: E402

# Concurrency is reserved where the parameter SweepConcurrency asks for it, and not by default.
UNRESERVED = {"Fn::If": ["ReserveSweeps", {"Ref": "SweepConcurrency"}, {"Ref": "AWS::NoValue"}]}

STACK = "AWS::CloudFormation::Stack"

# CloudFormation's limits: resources of a template, bytes of one in S3.
MOST_RESOURCES = 500
MOST_BYTES = 1_000_000


class ManagedPolicies:
    """Stands for the lookup of AWS's managed policies by name."""

    @staticmethod
    def load():
        return {}


def read(path):
    with open(path, encoding="utf-8") as file:
        return yaml_parse(file.read())


def packaged(template):
    """What `sam package` makes of the template: code and nested templates in S3."""
    template["Globals"]["Function"]["CodeUri"] = "s3://artifacts/bootstrap.zip"
    for stack in of_type(template["Resources"], STACK).values():
        stack["TemplateURL"] = "https://s3.amazonaws.com/artifacts/" + os.path.basename(stack["TemplateURL"])
    return template


def of_type(resources, kind):
    return {name: r["Properties"] for name, r in resources.items() if r["Type"] == kind}


def as_list(value):
    return value if isinstance(value, list) else [value]


def check_functions(source, out, wrong):
    declared = of_type(source, "AWS::Serverless::Function")
    functions = of_type(out, "AWS::Lambda::Function")
    if set(declared) != set(functions):
        wrong.append(f"functions declared and made differ: {set(declared) ^ set(functions)}")
    for name, f in functions.items():
        for key, want in (("Runtime", "provided.al2023"), ("Architectures", ["arm64"])):
            if f.get(key) != want:
                wrong.append(f"{name}: {key} is {f.get(key)}, not {want}")
        if f["Handler"] != declared[name]["Handler"]:
            wrong.append(f"{name}: the handler became {f['Handler']}")
        reserved = f.get("ReservedConcurrentExecutions", UNRESERVED)
        if reserved != UNRESERVED:
            wrong.append(f"{name}: reserves concurrency unasked, of which a new account has 10")


def routes_of(function):
    for event in function.get("Events", {}).values():
        if event["Type"] == "HttpApi":
            p = event["Properties"]
            yield f"{p['Method'].lower()} {p['Path']}" if "Path" in p else "any /$default"


def check_routes(source, out, wrong):
    declared = {r for f in of_type(source, "AWS::Serverless::Function").values() for r in routes_of(f)}
    made, timeouts = set(), set()
    for api in of_type(out, "AWS::ApiGatewayV2::Api").values():
        if "cors" in json.dumps(api).lower():
            wrong.append("the API answers CORS by itself")
        for path, methods in api["Body"]["paths"].items():
            for method, route in methods.items():
                made.add(f"{method} {path}")
                integration = route["x-amazon-apigateway-integration"]
                timeouts.add(integration.get("timeoutInMillis"))
                if path == "/$default" and route.get("isDefaultRoute") is not True:
                    wrong.append("the default route is none")
                if integration["payloadFormatVersion"] != "2.0":
                    wrong.append(f"{method} {path}: payload format {integration['payloadFormatVersion']}")
    declared = {r.replace("any ", "x-amazon-apigateway-any-method ") for r in declared}
    if declared != made:
        wrong.append(f"routes declared and made differ: {declared ^ made}")
    if timeouts != {29000}:
        wrong.append(f"timeouts of the integrations: {timeouts}")


def check_schedules(source, out, wrong):
    declared = sorted(
        event["Properties"]["ScheduleExpression"]
        for f in of_type(source, "AWS::Serverless::Function").values()
        for event in f.get("Events", {}).values()
        if event["Type"] == "ScheduleV2"
    )
    made = of_type(out, "AWS::Scheduler::Schedule")
    if declared != sorted(s["ScheduleExpression"] for s in made.values()):
        wrong.append(f"schedules declared and made differ: {declared} and {list(made)}")
    for name, s in made.items():
        if "RetryPolicy" not in s["Target"] or "DeadLetterConfig" not in s["Target"]:
            wrong.append(f"{name}: no retry policy or dead-letter queue")


def check_roles(out, wrong):
    """One role for each function and schedule, which allows nothing with a star."""
    roles = of_type(out, "AWS::IAM::Role")
    used = [json.dumps(f["Role"]) for f in of_type(out, "AWS::Lambda::Function").values()]
    used += [json.dumps(s["Target"]["RoleArn"]) for s in of_type(out, "AWS::Scheduler::Schedule").values()]
    if len(set(used)) != len(used):
        wrong.append("a role is shared")
    if len(roles) != len(used):
        wrong.append(f"{len(roles)} roles for {len(used)} functions and schedules")
    for name, role in roles.items():
        if "ManagedPolicyArns" in role:
            wrong.append(f"{name}: managed policies {role['ManagedPolicyArns']}")
        for policy in role.get("Policies", []):
            for s in as_list(policy["PolicyDocument"]["Statement"]):
                check_statement(name, s, wrong)
    for name, policy in of_type(out, "AWS::S3::BucketPolicy").items():
        for s in policy["PolicyDocument"]["Statement"]:
            check_statement(name, s, wrong)


def check_statement(name, statement, wrong):
    if statement["Effect"] != "Allow":
        return
    if any("*" in action for action in as_list(statement["Action"])):
        wrong.append(f"{name} allows {statement['Action']}")
    for resource in as_list(statement["Resource"]):
        text = json.dumps(resource)
        key = isinstance(resource, dict) and text.rstrip('"}]').endswith("/*")
        if "*" in text and not key:
            wrong.append(f"{name} allows {statement['Action']} on {resource}")
    if "s3:ListBucket" in as_list(statement["Action"]) and not statement.get("Condition", {}).get("StringLike", {}).get("s3:prefix"):
        wrong.append(f"{name} lists the whole bucket")


def check_invocation(out, wrong):
    """Each schedule's role invokes the schedule's own function and no other."""
    for name, schedule in of_type(out, "AWS::Scheduler::Schedule").items():
        role = out[schedule["Target"]["RoleArn"]["Fn::GetAtt"][0]]["Properties"]
        statements = [s for p in role["Policies"] for s in as_list(p["PolicyDocument"]["Statement"])]
        invoked = [s["Resource"] for s in statements if s["Action"] == "lambda:InvokeFunction"]
        if invoked != [schedule["Target"]["Arn"]]:
            wrong.append(f"{name}: its role invokes {invoked}")
        if {s["Action"] for s in statements} != {"lambda:InvokeFunction", "sqs:SendMessage"}:
            wrong.append(f"{name}: its role allows {statements}")
        if "Name" in schedule:
            wrong.append(f"{name}: a fixed name, of which an account has room for one")


def check_state(out, wrong):
    for name, t in of_type(out, "AWS::DynamoDB::Table").items():
        want = {
            "BillingMode": "PAY_PER_REQUEST",
            "DeletionProtectionEnabled": True,
            "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
            "SSESpecification": {"SSEEnabled": True},
            "TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": True},
        }
        for key, value in want.items():
            if t.get(key) != value:
                wrong.append(f"{name}: {key} is {t.get(key)}")
    for name, b in of_type(out, "AWS::S3::Bucket").items():
        if set(b.get("PublicAccessBlockConfiguration", {}).values()) != {True}:
            wrong.append(f"{name}: public access is not blocked")
        if b.get("VersioningConfiguration") != {"Status": "Enabled"}:
            wrong.append(f"{name}: is not versioned")
        if b.get("OwnershipControls") != {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}:
            wrong.append(f"{name}: ownership is not enforced")
        if "BucketEncryption" not in b:
            wrong.append(f"{name}: is not encrypted")
        check_lifecycle(name, b["LifecycleConfiguration"]["Rules"], wrong)
    for name, r in out.items():
        if r["Type"] in ("AWS::DynamoDB::Table", "AWS::S3::Bucket"):
            if {r.get("DeletionPolicy"), r.get("UpdateReplacePolicy")} != {"Retain"}:
                wrong.append(f"{name}: would be deleted with the stack")
        if r["Type"] == "AWS::Logs::LogGroup" and "RetentionInDays" not in r["Properties"]:
            wrong.append(f"{name}: keeps its lines for ever")


def check_lifecycle(name, rules, wrong):
    """Payloads expire, replaced versions and unfinished uploads too; nothing else does."""
    for rule in rules:
        expires = {"ExpirationInDays", "ExpirationDate"} & set(rule)
        if expires and rule.get("Prefix") != "payload/":
            wrong.append(f"{name}: the rule {rule['Id']} deletes what is current")
    for need in ("NoncurrentVersionExpiration", "AbortIncompleteMultipartUpload"):
        if not any(need in rule and "Prefix" not in rule for rule in rules):
            wrong.append(f"{name}: no rule for the whole bucket has {need}")


def check_denials(out, wrong):
    """Connections are encrypted, and writes of jobs conditional: cf. policy_test.go."""
    denials = {
        s["Sid"]: (s["Action"], s["Condition"])
        for p in of_type(out, "AWS::S3::BucketPolicy").values()
        for s in p["PolicyDocument"]["Statement"]
        if s["Effect"] == "Deny" and s["Principal"] == "*"
    }
    want = {
        "RefuseUnencryptedConnections": ("s3:*", {"Bool": {"aws:SecureTransport": "false"}}),
        "RefuseUnconditionalWritesOfJobs": ("s3:PutObject", {"Null": {"s3:if-match": "true", "s3:if-none-match": "true"}}),
        "RefuseUnconditionalDeletesOfJobs": ("s3:DeleteObject", {"Null": {"s3:if-match": "true"}}),
    }
    if denials != want:
        wrong.append(f"the bucket's policy denies {denials}")


def check_nested(folder, source, wrong):
    """Each nested stack gets the parameters that its template declares."""
    for name, stack in of_type(source, STACK).items():
        nested = read(os.path.join(folder, stack["TemplateURL"]))
        if set(nested["Parameters"]) != set(stack["Parameters"]):
            wrong.append(f"{name}: its parameters are {sorted(nested['Parameters'])}")


def check_api(out, wrong):
    for name, stage in of_type(out, "AWS::ApiGatewayV2::Stage").items():
        if not {"ThrottlingRateLimit", "ThrottlingBurstLimit"} <= set(stage.get("DefaultRouteSettings", {})):
            wrong.append(f"{name}: is not throttled")
        line = stage["AccessLogSettings"]["Format"].lower()
        for secret in ("authorization", "querystring", "$context.path", "header"):
            if secret in line:
                wrong.append(f"{name}: the access log holds {secret}")


def main():
    path = sys.argv[1]
    translated = transform(packaged(read(path)), {}, ManagedPolicies())
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            json.dump(translated, file, indent=1, sort_keys=True)
    source, out, wrong = read(path)["Resources"], translated["Resources"], []
    check_functions(source, out, wrong)
    check_routes(source, out, wrong)
    check_schedules(source, out, wrong)
    check_roles(out, wrong)
    check_invocation(out, wrong)
    check_state(out, wrong)
    check_denials(out, wrong)
    check_api(out, wrong)
    check_nested(os.path.dirname(path), source, wrong)
    size = len(json.dumps(translated))
    if len(out) > MOST_RESOURCES * 4 // 5 or size > MOST_BYTES * 4 // 5:
        wrong.append(f"{len(out)} resources, {size} bytes; CloudFormation takes {MOST_RESOURCES} and {MOST_BYTES}")
    for line in wrong:
        print(f"{path}: {line}")
    print(f"{path}: {len(source)} resources declared, {len(out)} after translation in {size} bytes, {len(wrong)} findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
