"""Translates template.yaml as CloudFormation would and checks what comes out.

usage: python3 infra/check.py TEMPLATE [OUTPUT.json]

It needs the Python package aws-sam-translator and no network: CodeUri is replaced
as `sam package` does, and managed policies are not looked up. It exits 1 with a
list of what is wrong. The translated template is written to OUTPUT.json.
"""
import json
import os
import sys

os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")

from samtranslator.translator.transform import transform  # noqa: E402
from samtranslator.yaml_helper import yaml_parse  # noqa: E402

BASIC = "arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"


class ManagedPolicies:
    """Stands for the lookup of AWS's managed policies by name."""

    @staticmethod
    def load():
        return {"AWSLambdaBasicExecutionRole": BASIC}


def read(path):
    with open(path, encoding="utf-8") as file:
        return yaml_parse(file.read())


def packaged(template):
    """What `sam package` makes of the template: code in S3 instead of a folder."""
    template["Globals"]["Function"]["CodeUri"] = "s3://artifacts/bootstrap.zip"
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
        if "ReservedConcurrentExecutions" in f:
            wrong.append(f"{name}: reserves concurrency, of which a new account has 10")


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
    """One role for each function, none of whose own statements allows with a star."""
    roles = of_type(out, "AWS::IAM::Role")
    used = [json.dumps(f["Role"]) for f in of_type(out, "AWS::Lambda::Function").values()]
    if len(set(used)) != len(used):
        wrong.append("two functions share a role")
    for name, role in roles.items():
        if set(role.get("ManagedPolicyArns", [])) - {BASIC}:
            wrong.append(f"{name}: managed policies {role['ManagedPolicyArns']}")
        for policy in role.get("Policies", []):
            for s in as_list(policy["PolicyDocument"]["Statement"]):
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
    for name, r in out.items():
        if r["Type"] in ("AWS::DynamoDB::Table", "AWS::S3::Bucket") and r.get("DeletionPolicy") != "Retain":
            wrong.append(f"{name}: would be deleted with the stack")


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
    check_state(out, wrong)
    if len(out) >= 400:
        wrong.append(f"{len(out)} resources; CloudFormation takes 500")
    for line in wrong:
        print(f"{path}: {line}")
    print(f"{path}: {len(source)} resources declared, {len(out)} after translation, {len(wrong)} findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
