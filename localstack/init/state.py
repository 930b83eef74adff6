"""Makes a hub's table and bucket as CloudFormation makes them from template.yaml, in a server that has just started.

LocalStack and MiniStack run it from /etc/localstack/init/ready.d with their own Python; compose.yaml mounts it there, and the
template beside it. It takes the two resources out of the template and gives them the names by which the local runner knows
them. Not the bucket's policy: it refuses connections without TLS, and there is none here. Run again, it changes nothing.

usage: python3 state.py     (TEMPLATE, AWS_ENDPOINT_URL and READY_FILE from the environment)
"""
import json
import os
import pathlib

import botocore.session
import yaml

NAMES = {"HubTable": ("TableName", "drawbridge-HubTable"), "QueueBucket": ("BucketName", "drawbridge-queuebucket")}
STACK = "drawbridge-state"


class Loader(yaml.SafeLoader):
    """Reads CloudFormation's short forms, which the two resources do not use, as texts."""


Loader.add_multi_constructor("!", lambda loader, tag, node: tag)


def state(path):
    """The template of the table and the bucket alone."""
    resources = yaml.load(pathlib.Path(path).read_text(encoding="utf-8"), Loader)["Resources"]
    chosen = {}
    for name, (key, value) in NAMES.items():
        chosen[name] = {"Type": resources[name]["Type"], "Properties": {**resources[name]["Properties"], key: value}}
    return {"AWSTemplateFormatVersion": "2010-09-09", "Resources": chosen}


def main():
    client = botocore.session.get_session().create_client(
        "cloudformation", region_name="us-east-1", endpoint_url=os.environ.get("AWS_ENDPOINT_URL", "http://127.0.0.1:4566"),
        aws_access_key_id="test", aws_secret_access_key="testtest")
    body = json.dumps(state(os.environ.get("TEMPLATE", "/opt/drawbridge/template.yaml")))
    stacks = client.list_stacks(StackStatusFilter=["CREATE_COMPLETE"])["StackSummaries"]
    if all(s["StackName"] != STACK for s in stacks):
        client.create_stack(StackName=STACK, TemplateBody=body)
        client.get_waiter("stack_create_complete").wait(StackName=STACK, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    pathlib.Path(os.environ.get("READY_FILE", "/tmp/drawbridge-state")).touch()
    print("the table and the bucket are there")


if __name__ == "__main__":
    main()
