"""Creates the translated template as a stack on a local server and compares what is there with what was declared.

usage: python3 compare.py TEMPLATE.yaml TRANSLATED.json ENDPOINT SERVER [BOOTSTRAP DRAWBRIDGE]

TRANSLATED.json is what infra/check.py writes. First the translated template itself is held against TEMPLATE.yaml: what the
translator only passes on is there unchanged, and every function, route and schedule says what was declared. Then the stack
is created at ENDPOINT, and every resource is asked for at its own service. Servers leave things out while they say
CREATE_COMPLETE: what SERVER (moto, ministack) does not make, or makes otherwise, is listed below with the reason, and the
run fails when that list is not exactly what was found.

With the functions' binary (built for this machine) and that of ./localstack, the stack is deployed with it, and a message goes
through three of its functions, each invoked as the gateway would.
"""
import ast
import glob
import io
import json
import os
import subprocess
import sys
import time
import zipfile

import boto3
from botocore.config import Config
from samtranslator.yaml_helper import yaml_parse

STACK = "drawbridge"
ACCOUNT, REGION = {"moto": "123456789012", "ministack": "000000000000"}, "us-east-1"

NOT_MADE = "the server has no such resource in its CloudFormation"
IGNORED = "the server's CloudFormation ignores the property"

# What each server does not do, by "Type" or "Type.Property".
KNOWN = {
    "moto": {
        "AWS::ApiGatewayV2::Api": NOT_MADE,
        "AWS::ApiGatewayV2::Stage": NOT_MADE,
        "AWS::CloudWatch::Alarm": NOT_MADE,
        "AWS::Lambda::EventInvokeConfig": NOT_MADE,
        "AWS::Logs::MetricFilter": NOT_MADE,
        "AWS::S3::BucketPolicy": NOT_MADE,
        "AWS::Scheduler::Schedule": NOT_MADE,
        "AWS::DynamoDB::Table.PointInTimeRecoverySpecification": IGNORED,
        "AWS::DynamoDB::Table.SSESpecification": IGNORED,
        "AWS::DynamoDB::Table.TimeToLiveSpecification": IGNORED,
        "AWS::Lambda::Function.Architectures": IGNORED,
        "AWS::Lambda::Function.LoggingConfig": IGNORED,
        "AWS::Lambda::Function.Tags": IGNORED,
        "AWS::S3::Bucket.LifecycleConfiguration": IGNORED,
        "AWS::S3::Bucket.OwnershipControls": IGNORED,
        "AWS::S3::Bucket.PublicAccessBlockConfiguration": IGNORED,
        "AWS::S3::Bucket.VersioningConfiguration": IGNORED,
    },
    "ministack": {
        "AWS::ApiGatewayV2::Api.Name": "the server does not read the API's Body",
        "AWS::ApiGatewayV2::Api.Routes": "the server does not read the API's Body",
        "AWS::ApiGatewayV2::Stage.DefaultRouteSettings": IGNORED,
        "AWS::DynamoDB::Table.PointInTimeRecoverySpecification": IGNORED,
        "AWS::DynamoDB::Table.SSESpecification": IGNORED,
        "AWS::DynamoDB::Table.TimeToLiveSpecification": IGNORED,
        "AWS::S3::Bucket.LifecycleConfiguration": IGNORED,
    },
}


# Parameters other than the defaults, and why.
PARAMETERS = {
    "moto": {},
    "ministack": {"Alarms": "off"},  # it refuses an alarm on a metric that is computed from others, and the stack with it
}


class Stack:
    """What the references of a template stand for in a stack that exists."""

    def __init__(self, template, account, parameters=()):
        self.template, self.account = template, account
        self.physical, self.parameters = {}, dict(parameters)

    def resolve(self, value):
        if isinstance(value, list):
            return [v for v in (self.resolve(v) for v in value) if v is not None]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            (name, argument), = value.items()
            if name == "Ref":
                return self.ref(argument)
            if name == "Fn::GetAtt":
                return self.attribute(*argument)
            if name == "Fn::Sub":
                return self.sub(argument)
            if name == "Fn::Join":
                return argument[0].join(self.resolve(argument[1]))
            if name == "Fn::If":
                return self.resolve(argument[1] if self.condition(argument[0]) else argument[2])
        resolved = {k: self.resolve(v) for k, v in value.items()}
        return {k: v for k, v in resolved.items() if v is not None}

    def ref(self, name):
        pseudo = {"AWS::AccountId": self.account, "AWS::Region": REGION, "AWS::Partition": "aws", "AWS::StackName": STACK,
                  "AWS::URLSuffix": "amazonaws.com", "AWS::NoValue": None}
        if name in pseudo:
            return pseudo[name]
        if name in self.template.get("Parameters", {}):
            return self.parameters[name] if name in self.parameters else self.template["Parameters"][name]["Default"]
        if self.template["Resources"][name]["Type"] == "AWS::Events::EventBus":
            return self.resolve(self.template["Resources"][name]["Properties"]["Name"])
        return self.physical.get(name, name)

    def attribute(self, name, attribute):
        kind, ref = self.template["Resources"][name]["Type"], self.ref(name)
        if (kind, attribute) == ("AWS::SQS::Queue", "QueueName"):
            return ref.rsplit("/", 1)[-1]
        if attribute != "Arn":
            raise ValueError(f"the attribute {attribute} of {name} is not understood")
        return {
            "AWS::DynamoDB::Table": f"arn:aws:dynamodb:{REGION}:{self.account}:table/{ref}",
            "AWS::S3::Bucket": f"arn:aws:s3:::{ref}",
            "AWS::Lambda::Function": f"arn:aws:lambda:{REGION}:{self.account}:function:{ref}",
            "AWS::IAM::Role": f"arn:aws:iam::{self.account}:role/{ref}",
            "AWS::Logs::LogGroup": f"arn:aws:logs:{REGION}:{self.account}:log-group:{ref}",
            "AWS::SQS::Queue": f"arn:aws:sqs:{REGION}:{self.account}:{ref.rsplit('/', 1)[-1]}",
            "AWS::Events::EventBus": f"arn:aws:events:{REGION}:{self.account}:event-bus/{ref}",
        }[kind]

    def sub(self, argument):
        text, values = argument if isinstance(argument, list) else (argument, {})
        out, rest = "", text
        while "${" in rest:
            before, _, rest = rest.partition("${")
            name, _, rest = rest.partition("}")
            if name in values:
                value = self.resolve(values[name])
            elif "." in name:
                value = self.attribute(*name.split(".", 1))
            else:
                value = self.ref(name)
            out += before + str(value)
        return out + rest

    def condition(self, name):
        return self.truth(self.template["Conditions"][name])

    def truth(self, expression):
        (name, argument), = expression.items()
        if name == "Condition":
            return self.condition(argument)
        if name == "Fn::Equals":
            first, second = self.resolve(argument)
            return str(first) == str(second)
        values = [self.truth(a) for a in argument]
        return {"Fn::Not": lambda: not values[0], "Fn::And": lambda: all(values), "Fn::Or": lambda: any(values)}[name]()


# --- the translated template against the one that was written ---------------------------------------------------------


def check_translation(source, out):
    """Lists what the translator changed or lost."""
    wrong = []
    for name, declared in source["Resources"].items():
        if declared["Type"].startswith("AWS::Serverless::"):
            continue
        made = out["Resources"].get(name)
        if made is None or made["Type"] != declared["Type"] or written(made) != written(declared):
            wrong.append(f"{name}: the translated {declared['Type']} is not what was declared")
    globals_ = source.get("Globals", {}).get("Function", {})
    routes, schedules = {}, {}
    for name, declared in source["Resources"].items():
        if declared["Type"] == "AWS::Serverless::Function":
            wrong += check_function(name, {**globals_, **declared["Properties"]}, globals_, out["Resources"])
            note_events(name, declared["Properties"].get("Events", {}), routes, schedules)
    wrong += unequal("routes", routes, translated_routes(out["Resources"]))
    wrong += unequal("schedules", schedules, translated_schedules(out["Resources"]))
    return wrong


def written(resource):
    """A resource's properties, but for where its nested template is: packaging puts it elsewhere."""
    return {k: v for k, v in resource.get("Properties", {}).items() if k != "TemplateURL"}


def check_function(name, declared, globals_, out):
    wrong, made = [], out[name]["Properties"]
    for key, value in declared.items():
        if key in ("CodeUri", "Events", "Policies", "Tags", "EventInvokeConfig"):
            continue
        if key == "Environment":
            value = {"Variables": {**globals_.get("Environment", {}).get("Variables", {}), **value.get("Variables", {})}}
        if made.get(key) != value:
            wrong.append(f"{name}: {key} became {made.get(key)}")
    return wrong


def note_events(function, events, routes, schedules):
    for event in events.values():
        p = event["Properties"]
        if event["Type"] == "HttpApi":
            key = f"{p['Method']} {p['Path']}" if "Path" in p else "$default"
            routes[key] = (function, p.get("TimeoutInMillis"), p.get("PayloadFormatVersion"))
        elif event["Type"] == "ScheduleV2":
            schedules[function] = (p["ScheduleExpression"], p.get("RetryPolicy"), bool(p.get("DeadLetterConfig")))


def translated_routes(out):
    routes = {}
    for api in of_type(out, "AWS::ApiGatewayV2::Api").values():
        for path, methods in api["Body"]["paths"].items():
            for method, route in methods.items():
                key = route_key(method, path)
                integration = route["x-amazon-apigateway-integration"]
                function = integration["uri"]["Fn::Sub"].split("${")[-1].split(".Arn")[0]
                routes[key] = (function, integration.get("timeoutInMillis"), integration["payloadFormatVersion"])
    return routes


def translated_schedules(out):
    schedules = {}
    for schedule in of_type(out, "AWS::Scheduler::Schedule").values():
        target = schedule["Target"]
        schedules[target["Arn"]["Fn::GetAtt"][0]] = (
            schedule["ScheduleExpression"], target.get("RetryPolicy"), bool(target.get("DeadLetterConfig")))
    return schedules


def route_key(method, path):
    method = "ANY" if method == "x-amazon-apigateway-any-method" else method.upper()
    return "$default" if path == "/$default" else f"{method} {path}"


def of_type(resources, kind):
    return {name: r["Properties"] for name, r in resources.items() if r["Type"] == kind}


def unequal(what, declared, made):
    return [f"{what}: {key} is {made.get(key)}, declared {declared.get(key)}"
            for key in sorted({*declared, *made}) if declared.get(key) != made.get(key)]


# --- the stack against the translated template ------------------------------------------------------------------------


class Server:
    """Asks every service of a server for what a resource has become."""

    def __init__(self, endpoint):
        self.endpoint = endpoint
        self.clients = {}

    def __call__(self, service):
        if service not in self.clients:
            self.clients[service] = boto3.client(
                service, endpoint_url=self.endpoint, region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test",
                config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 2}, read_timeout=300))
        return self.clients[service]

    def table(self, ref, _):
        t = self("dynamodb").describe_table(TableName=ref)["Table"]
        ttl = self("dynamodb").describe_time_to_live(TableName=ref)["TimeToLiveDescription"]
        backups = self("dynamodb").describe_continuous_backups(TableName=ref)["ContinuousBackupsDescription"]

        def index(i):
            return {k: i[k] for k in ("IndexName", "KeySchema", "Projection")}
        return {
            "AttributeDefinitions": t["AttributeDefinitions"], "KeySchema": t["KeySchema"],
            "BillingMode": t.get("BillingModeSummary", {}).get("BillingMode"),
            "GlobalSecondaryIndexes": [index(i) for i in t["GlobalSecondaryIndexes"]],
            "LocalSecondaryIndexes": [index(i) for i in t["LocalSecondaryIndexes"]],
            "DeletionProtectionEnabled": t.get("DeletionProtectionEnabled"),
            "SSESpecification": {"SSEEnabled": t.get("SSEDescription", {}).get("Status") == "ENABLED"},
            "TimeToLiveSpecification": {"AttributeName": ttl.get("AttributeName"), "Enabled": ttl["TimeToLiveStatus"] == "ENABLED"},
            "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled":
                backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"},
        }

    def bucket(self, ref, _):
        s3 = self("s3")
        return {
            "VersioningConfiguration": {"Status": s3.get_bucket_versioning(Bucket=ref).get("Status")},
            "PublicAccessBlockConfiguration": tried(lambda: s3.get_public_access_block(Bucket=ref)["PublicAccessBlockConfiguration"]),
            "LifecycleConfiguration": tried(lambda: {"Rules": [rule(r) for r in s3.get_bucket_lifecycle_configuration(Bucket=ref)["Rules"]]}),
            "OwnershipControls": tried(lambda: s3.get_bucket_ownership_controls(Bucket=ref)["OwnershipControls"]),
            "BucketEncryption": tried(lambda: {"ServerSideEncryptionConfiguration": [
                {"ServerSideEncryptionByDefault": r["ApplyServerSideEncryptionByDefault"]}
                for r in s3.get_bucket_encryption(Bucket=ref)["ServerSideEncryptionConfiguration"]["Rules"]]}),
        }

    def bucket_policy(self, _, declared):
        document = self("s3").get_bucket_policy(Bucket=declared["Bucket"])["Policy"]
        return {"Bucket": declared["Bucket"], "PolicyDocument": json.loads(document)}

    def function(self, ref, declared):
        f = self("lambda").get_function_configuration(FunctionName=ref)
        reserved = self("lambda").get_function_concurrency(FunctionName=ref).get("ReservedConcurrentExecutions")
        tags = self("lambda").list_tags(Resource=f["FunctionArn"])["Tags"]
        return {
            **{k: f.get(k) for k in ("Handler", "Runtime", "MemorySize", "Timeout", "Role", "Architectures", "Environment", "LoggingConfig")},
            "Code": declared["Code"], "ReservedConcurrentExecutions": reserved,
            "Tags": [t for t in declared.get("Tags", []) if tags.get(t["Key"]) == t["Value"]],
        }

    def role(self, ref, declared):
        iam = self("iam")
        names = iam.list_role_policies(RoleName=ref)["PolicyNames"]
        policies = [{"PolicyName": n, "PolicyDocument": document(iam.get_role_policy(RoleName=ref, PolicyName=n)["PolicyDocument"])} for n in names]
        order = [p["PolicyName"] for p in declared.get("Policies", [])]
        attached = [p["PolicyArn"] for p in iam.list_attached_role_policies(RoleName=ref)["AttachedPolicies"]]
        role = iam.get_role(RoleName=ref)["Role"]
        return {
            "AssumeRolePolicyDocument": role["AssumeRolePolicyDocument"],
            "Policies": sorted(policies, key=lambda p: order.index(p["PolicyName"]) if p["PolicyName"] in order else len(order)),
            "ManagedPolicyArns": attached or declared.get("ManagedPolicyArns") and [],
            "Tags": role.get("Tags"),
        }

    def permission(self, _, declared):
        policy = json.loads(self("lambda").get_policy(FunctionName=declared["FunctionName"])["Policy"])
        for s in policy["Statement"]:
            source = s.get("Condition", {}).get("ArnLike", {}).get("AWS:SourceArn")
            principal = s["Principal"].get("Service") if isinstance(s["Principal"], dict) else s["Principal"]
            if source == declared.get("SourceArn"):
                return {"Action": s["Action"], "Principal": principal, "SourceArn": source, "FunctionName": declared["FunctionName"]}
        return {}

    def invoke_config(self, _, declared):
        c = self("lambda").get_function_event_invoke_config(FunctionName=declared["FunctionName"], Qualifier=declared["Qualifier"])
        destinations = {k: v for k, v in c.get("DestinationConfig", {}).items() if v}
        return {**{k: c.get(k) for k in ("MaximumEventAgeInSeconds", "MaximumRetryAttempts")}, "DestinationConfig": destinations,
                "FunctionName": declared["FunctionName"], "Qualifier": declared["Qualifier"]}

    def log_group(self, ref, _):
        groups = self("logs").describe_log_groups(logGroupNamePrefix=ref)["logGroups"]
        return {"LogGroupName": ref, "RetentionInDays": next(g.get("retentionInDays") for g in groups if g["logGroupName"] == ref)}

    def queue(self, ref, _):
        a = self("sqs").get_queue_attributes(QueueUrl=ref, AttributeNames=["All"])["Attributes"]
        return {"MessageRetentionPeriod": int(a["MessageRetentionPeriod"]), "SqsManagedSseEnabled": a.get("SqsManagedSseEnabled") == "true"}

    def bus(self, _, declared):
        return {"Name": self("events").describe_event_bus(Name=declared["Name"])["Name"]}

    def schedule(self, ref, declared):
        s = self("scheduler").get_schedule(Name=ref.split("|")[-1].split("/")[-1])
        return {k: s.get(k) for k in declared}

    def api(self, ref, declared):
        v2 = self("apigatewayv2")
        integrations = {i["IntegrationId"]: i for i in v2.get_integrations(ApiId=ref, MaxResults="500")["Items"]}
        routes = {}
        for r in v2.get_routes(ApiId=ref, MaxResults="500")["Items"]:
            i = integrations[r["Target"].split("/")[1]]
            routes[r["RouteKey"]] = [i["IntegrationUri"], i.get("TimeoutInMillis"), i["PayloadFormatVersion"]]
        return {"Routes": routes, "Name": v2.get_api(ApiId=ref)["Name"]}

    def stage(self, ref, declared):
        s = self("apigatewayv2").get_stage(ApiId=declared["ApiId"], StageName=declared["StageName"])
        s["Tags"] = {k: v for k, v in s.get("Tags", {}).items() if not k.startswith("aws:")}
        return {"ApiId": declared["ApiId"], **{k: s.get(k) for k in declared if k != "ApiId"}}

    def alarm(self, ref, declared):
        a = self("cloudwatch").describe_alarms(AlarmNames=[ref])["MetricAlarms"][0]
        return {k: a.get(k) for k in declared}

    def metric_filter(self, _, declared):
        filters = self("logs").describe_metric_filters(logGroupName=declared["LogGroupName"])["metricFilters"]
        f = next(f for f in filters if f["filterPattern"] == declared["FilterPattern"])
        transformations = [{k[0].upper() + k[1:]: v for k, v in t.items()} for t in f["metricTransformations"]]
        return {"LogGroupName": declared["LogGroupName"], "FilterPattern": f["filterPattern"], "MetricTransformations": transformations}

    def topic(self, ref, _):
        return self("sns").get_topic_attributes(TopicArn=ref)["Attributes"]

    def subscription(self, _, declared):
        found = self("sns").list_subscriptions_by_topic(TopicArn=declared["TopicArn"])["Subscriptions"]
        return next({k: s[k] for k in declared} for s in found if s["Endpoint"] == declared["Endpoint"])

    def dashboard(self, ref, declared):
        body = json.loads(self("cloudwatch").get_dashboard(DashboardName=ref)["DashboardBody"])
        return {"DashboardBody": declared["DashboardBody"] if body == json.loads(declared["DashboardBody"]) else body,
                "DashboardName": declared.get("DashboardName") and ref}


def document(value):
    """A policy; moto gives Python's way of writing one."""
    return ast.literal_eval(value) if isinstance(value, str) else value


def tried(ask):
    """What is not set is an error to S3."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 the code of the error differs by server
        return str(error)


def rule(r):
    """A lifecycle rule as CloudFormation writes it."""
    out = {"Id": r["ID"], "Status": r["Status"]}
    out["Prefix"] = r.get("Filter", {}).get("Prefix", r.get("Prefix"))
    expiration = r.get("Expiration", {})
    out["ExpirationInDays"], out["ExpiredObjectDeleteMarker"] = expiration.get("Days"), expiration.get("ExpiredObjectDeleteMarker")
    if "NoncurrentVersionExpiration" in r:
        out["NoncurrentVersionExpiration"] = r["NoncurrentVersionExpiration"]
    if "AbortIncompleteMultipartUpload" in r:
        out["AbortIncompleteMultipartUpload"] = r["AbortIncompleteMultipartUpload"]
    return {k: v for k, v in out.items() if v not in (None, "")}


READERS = {
    "AWS::DynamoDB::Table": Server.table, "AWS::S3::Bucket": Server.bucket, "AWS::S3::BucketPolicy": Server.bucket_policy,
    "AWS::Lambda::Function": Server.function, "AWS::IAM::Role": Server.role, "AWS::Lambda::Permission": Server.permission,
    "AWS::Lambda::EventInvokeConfig": Server.invoke_config, "AWS::Logs::LogGroup": Server.log_group,
    "AWS::SQS::Queue": Server.queue, "AWS::Events::EventBus": Server.bus, "AWS::Scheduler::Schedule": Server.schedule,
    "AWS::ApiGatewayV2::Api": Server.api, "AWS::ApiGatewayV2::Stage": Server.stage,
    "AWS::CloudWatch::Alarm": Server.alarm, "AWS::CloudWatch::Dashboard": Server.dashboard, "AWS::Logs::MetricFilter": Server.metric_filter,
    "AWS::SNS::Topic": Server.topic, "AWS::SNS::Subscription": Server.subscription,
}


# What is found by what it belongs to, or by its declared name: moto gives no id of it.
NAMELESS = {"AWS::S3::BucketPolicy", "AWS::Lambda::Permission", "AWS::Events::EventBus", "AWS::Logs::MetricFilter"}


def declared_of(kind, properties):
    """The declared properties as the reader of the type gives them."""
    if kind == "AWS::ApiGatewayV2::Api":
        routes = {}
        for path, methods in properties["Body"]["paths"].items():
            for method, route in methods.items():
                i = route["x-amazon-apigateway-integration"]
                key = route_key(method, path)
                routes[key] = [i["uri"], i.get("timeoutInMillis"), i["payloadFormatVersion"]]
        return {"Routes": routes, "Name": properties["Body"]["info"]["title"]}
    return properties


def canonical(value):
    """Equal for what means the same: order of a policy's actions and of definitions, numbers as texts."""
    if isinstance(value, dict):
        return {k: canonical(v) for k, v in sorted(value.items())}
    if isinstance(value, str) and ":log-group:" in value:
        return value.removesuffix(":*")  # AWS's attribute Arn ends so; moto's does not
    if isinstance(value, list):
        return sorted((canonical(v) for v in value), key=lambda v: json.dumps(v, sort_keys=True))
    return str(value)


def for_moto(template):
    """The template without what moto fails on: outputs of a type that it does not know, and the Ref of one or of an event bus,
    which to it is no text."""
    def names(value):
        if isinstance(value, dict):
            return [n for k, v in value.items() for n in ([v[0]] if k == "Fn::GetAtt" else names(v))]
        return [n for v in value for n in names(v)] if isinstance(value, list) else []

    def told(value):
        if isinstance(value, dict):
            named = texts.get(value.get("Ref")) if len(value) == 1 else None
            return named or {k: told(v) for k, v in value.items()}
        return [told(v) for v in value] if isinstance(value, list) else value
    resources = template["Resources"]
    texts = {name: bus["Name"] for name, bus in of_type(resources, "AWS::Events::EventBus").items()}
    texts |= {name: name for name in of_type(resources, "AWS::ApiGatewayV2::Api")}
    outputs = {name: o for name, o in template.get("Outputs", {}).items()
               if not any(resources[n]["Type"] in KNOWN["moto"] for n in names(o))}
    return {**template, "Outputs": outputs, "Resources": told(resources)}


def package():
    """The deployment package: the binary where one is given, or nothing."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        if len(sys.argv) > 5:
            file.write(sys.argv[5], "bootstrap")
    return archive.getvalue()


def create(server, template, name):
    """Creates the stack, with what `sam package` uploads in place."""
    s3, cloudformation = server("s3"), server("cloudformation")
    s3.create_bucket(Bucket="artifacts")
    s3.put_object(Bucket="artifacts", Key="bootstrap.zip", Body=package())
    for path in glob.glob(os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "infra", "*.yaml")):
        s3.put_object(Bucket="artifacts", Key=os.path.basename(path), Body=open(path, "rb").read())
    s3.put_object(Bucket="artifacts", Key="template.json", Body=json.dumps(template))
    # moto finds no bucket by a URL of itself; a template of this size is not taken inline elsewhere.
    where = {"TemplateBody": json.dumps(template)} if name == "moto" else {"TemplateURL": f"{server.endpoint}/artifacts/template.json"}
    begun = time.monotonic()
    cloudformation.create_stack(
        StackName=STACK, **where, Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in PARAMETERS[name].items()],
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"])
    while True:
        stack = cloudformation.describe_stacks(StackName=STACK)["Stacks"][0]
        if stack["StackStatus"] != "CREATE_IN_PROGRESS":
            break
        time.sleep(0.2)
    print(f"{stack['StackStatus']} in {time.monotonic() - begun:.1f} s")
    if stack["StackStatus"] != "CREATE_COMPLETE":
        for event in cloudformation.describe_stack_events(StackName=STACK)["StackEvents"]:
            if "FAILED" in event["ResourceStatus"]:
                print(event["LogicalResourceId"], event.get("ResourceStatusReason"))
        sys.exit(1)


def physical_ids(server, stack_name):
    pages = server("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack_name)
    return {r["LogicalResourceId"]: r["PhysicalResourceId"]
            for page in pages for r in page["StackResourceSummaries"] if r.get("PhysicalResourceId")}


def differences(server, stack, found, kinds):
    """Notes what differs, by "Type" or "Type.Property", each with one example, in nested stacks too."""
    for name, resource in stack.template["Resources"].items():
        kind = resource["Type"]
        if "Condition" in resource and not stack.condition(resource["Condition"]):
            continue
        kinds.add(kind)
        if name not in stack.physical and kind not in NAMELESS:
            found.setdefault(kind, f"{name} was not made")
        elif kind == "AWS::CloudFormation::Stack":
            differences(server, nested(server, stack, name, resource["Properties"]), found, kinds)
        else:
            compare(server, stack, name, resource, found)


def nested(server, stack, name, properties):
    path = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "infra", os.path.basename(properties["TemplateURL"]))
    with open(path, encoding="utf-8") as file:
        child = Stack(yaml_parse(file.read()), stack.account, stack.resolve(properties["Parameters"]))
    child.physical = physical_ids(server, stack.ref(name))
    return child


def compare(server, stack, name, resource, found):
    kind = resource["Type"]
    if kind not in READERS:
        found.setdefault(kind, f"{name}: nothing compares this type")
        return
    declared = stack.resolve(declared_of(kind, resource.get("Properties", {})))
    try:
        made = READERS[kind](server, stack.ref(name), declared)
    except Exception as error:  # noqa: BLE001 any error says that it is not there
        found.setdefault(kind, f"{name}: {type(error).__name__}: {str(error)[:200]}")
        return
    for key, value in declared.items():
        if canonical(made.get(key)) != canonical(value):
            example = f"{name}: declared {json.dumps(value)[:300]}, made {json.dumps(made.get(key), default=str)[:300]}"
            found.setdefault(f"{kind}.{key}", example)


def answers(server, stack):
    """Sends a message through the stack's functions and gives what went wrong."""
    environment = {**os.environ, "AWS_ENDPOINT_URL": server.endpoint, "AWS_REGION": REGION, "AWS_ACCESS_KEY_ID": "test",
                   "AWS_SECRET_ACCESS_KEY": "test"}
    token = subprocess.run([sys.argv[6], "token", "create", "-table", stack.ref("HubTable"), "-name", "stack"], env=environment,
                           check=True, capture_output=True, text=True).stdout.strip()
    texts = []
    for function, body in (("Register", {"agent_id": "a", "cli": "claude"}), ("Publish", {"from": "b", "to": "a", "topic": "t", "payload": "through"}),
                           ("Context", {"agent_id": "a"})):
        path = f"/bridge/{function.lower()}"
        event = {"version": "2.0", "rawPath": path, "headers": {"authorization": f"Bearer {token}"}, "body": json.dumps(body),
                 "requestContext": {"http": {"method": "POST", "path": path}}}
        answer = json.load(server("lambda").invoke(FunctionName=stack.ref(f"{function}Function"), Payload=json.dumps(event))["Payload"])
        texts.append(f"{function}: {answer.get('statusCode')} {answer.get('body', answer)}")
    if all(": 200 " in text for text in texts) and '"payload":"through"' in texts[-1]:
        print("  a message goes through the functions of the stack")
        return []
    return texts


def main():
    source_path, translated_path, endpoint, name = sys.argv[1:5]
    with open(source_path, encoding="utf-8") as file:
        source = yaml_parse(file.read())
    with open(translated_path, encoding="utf-8") as file:
        translated = json.load(file)
    wrong = check_translation(source, translated)
    server, stack = Server(endpoint), Stack(translated, ACCOUNT[name], PARAMETERS[name])
    create(server, for_moto(translated) if name == "moto" else translated, name)
    stack.physical = physical_ids(server, STACK)
    found, kinds, known = {}, set(), KNOWN[name]
    differences(server, stack, found, kinds)
    for key, example in sorted(found.items()):
        if key in known:
            print(f"  {key}: {known[key]}")
        else:
            wrong.append(f"{key} differs: {example}")
    wrong += [f"{key} does not differ any more: strike it from the list" for key in sorted(set(known) - set(found))]
    if len(sys.argv) > 6:
        wrong += answers(server, stack)
    for line in wrong:
        print(f"{name}: {line}")
    print(f"{name}: {len(kinds)} types of resources, {len(set(known) & set(found))} known differences, {len(wrong)} findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
