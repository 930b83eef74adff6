package template

import (
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"go.yaml.in/yaml/v3"
)

// A Table is a DynamoDB table as CreateTable takes it.
type Table struct {
	LogicalID string
	Name      string
	// TTLAttribute holds the epoch second after which an item is garbage; empty
	// when the table has none.
	TTLAttribute string

	create dynamodb.CreateTableInput
}

// CreateInput gives a request that the caller may change.
func (t Table) CreateInput() *dynamodb.CreateTableInput {
	in := t.create
	return &in
}

// A Bucket is an S3 bucket.
type Bucket struct {
	LogicalID string
	Name      string
	// Lifecycle says what the bucket forgets, and when; nil: nothing. The caller
	// must not change it.
	Lifecycle []s3types.LifecycleRule
}

func (e *evaluator) bucket(d declaration) Bucket {
	o := d.properties
	o.ignore("BucketName")
	o.ignore(ignoredOfBucket...)
	b := Bucket{LogicalID: d.id, Name: e.resources[d.id].ref}
	if o.get("LifecycleConfiguration") != nil {
		b.Lifecycle = e.lifecycle(o.object("LifecycleConfiguration"))
	}
	o.done()
	return b
}

func (e *evaluator) table(d declaration) Table {
	o := d.properties
	o.ignore("TableName")
	o.ignore(ignoredOfTable...)
	name := e.resources[d.id].ref
	// Provisioned throughput would throttle on AWS and not here.
	o.oneOf("BillingMode", "PAY_PER_REQUEST")
	t := Table{LogicalID: d.id, Name: name, create: dynamodb.CreateTableInput{
		TableName:            aws.String(name),
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: e.attributes(o),
		KeySchema:            e.keySchema(o),
	}}
	for i, n := range o.list("LocalSecondaryIndexes") {
		x := e.index(n, fmt.Sprintf("%s[%d]", o.child("LocalSecondaryIndexes"), i))
		t.create.LocalSecondaryIndexes = append(t.create.LocalSecondaryIndexes, types.LocalSecondaryIndex{
			IndexName: x.name, KeySchema: x.keys, Projection: x.projection,
		})
	}
	for i, n := range o.list("GlobalSecondaryIndexes") {
		x := e.index(n, fmt.Sprintf("%s[%d]", o.child("GlobalSecondaryIndexes"), i))
		t.create.GlobalSecondaryIndexes = append(t.create.GlobalSecondaryIndexes, types.GlobalSecondaryIndex{
			IndexName: x.name, KeySchema: x.keys, Projection: x.projection,
		})
	}
	if o.get("TimeToLiveSpecification") != nil {
		t.TTLAttribute = e.ttl(o.object("TimeToLiveSpecification"))
	}
	o.done()
	return t
}

func (e *evaluator) ttl(o *object) string {
	defer o.done()
	name := o.needText("AttributeName")
	if o.oneOf("Enabled", "true", "false") == "false" {
		return ""
	}
	return name
}

func (e *evaluator) attributes(o *object) []types.AttributeDefinition {
	o.need("AttributeDefinitions")
	var out []types.AttributeDefinition
	for i, n := range o.list("AttributeDefinitions") {
		a := e.object(n, fmt.Sprintf("%s[%d]", o.child("AttributeDefinitions"), i))
		out = append(out, types.AttributeDefinition{
			AttributeName: aws.String(a.needText("AttributeName")),
			AttributeType: types.ScalarAttributeType(a.oneOf("AttributeType", "S", "N", "B")),
		})
		a.done()
	}
	return out
}

func (e *evaluator) keySchema(o *object) []types.KeySchemaElement {
	o.need("KeySchema")
	var out []types.KeySchemaElement
	for i, n := range o.list("KeySchema") {
		k := e.object(n, fmt.Sprintf("%s[%d]", o.child("KeySchema"), i))
		out = append(out, types.KeySchemaElement{
			AttributeName: aws.String(k.needText("AttributeName")),
			KeyType:       types.KeyType(k.oneOf("KeyType", "HASH", "RANGE")),
		})
		k.done()
	}
	return out
}

// An index is what local and global secondary indexes have in common.
type index struct {
	name       *string
	keys       []types.KeySchemaElement
	projection *types.Projection
}

func (e *evaluator) index(n *yaml.Node, path string) index {
	o := e.object(n, path)
	x := index{name: aws.String(o.needText("IndexName")), keys: e.keySchema(o)}
	p := o.object("Projection")
	x.projection = &types.Projection{
		ProjectionType: types.ProjectionType(p.oneOf("ProjectionType", "ALL", "KEYS_ONLY", "INCLUDE")),
	}
	for i, a := range p.list("NonKeyAttributes") {
		x.projection.NonKeyAttributes = append(x.projection.NonKeyAttributes,
			e.text(a, fmt.Sprintf("%s[%d]", p.child("NonKeyAttributes"), i)))
	}
	p.done()
	o.done()
	return x
}
