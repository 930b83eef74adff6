package dynamo

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Limits of tables and indexes.
const (
	minNameSize          = 3
	maxTableNameSize     = 255
	maxKeyNameSize       = 255
	maxLocalIndexes      = 5
	maxGlobalIndexes     = 20
	maxNonKeyAttributes  = 100
	maxProvisionedUnits  = 1_000_000_000_000
	projectionAll        = "ALL"
	projectionInclude    = "INCLUDE"
	projectionKeysOnly   = "KEYS_ONLY"
	billingProvisioned   = "PROVISIONED"
	billingPerRequest    = "PAY_PER_REQUEST"
	keyHash              = "HASH"
	keyRangeType         = "RANGE"
	multiAttributeKeys   = "a global secondary index with multi-attribute keys"
	defaultTableClass    = "STANDARD"
	infrequentTableClass = "STANDARD_INFREQUENT_ACCESS"
)

// A tableDefinition is what CreateTable and UpdateTable decide about a table.
// It is immutable and is written to the journal as JSON.
type tableDefinition struct {
	// ID tells incarnations of one table name apart; it begins the keys of the
	// table's records in the journal.
	ID                     uint32
	UUID                   string
	TableName              string
	Created                float64 // seconds since 1970
	AttributeDefinitions   []attributeDefinition
	KeySchema              []keyElement
	LocalSecondaryIndexes  []indexDefinition `json:",omitempty"`
	GlobalSecondaryIndexes []indexDefinition `json:",omitempty"`
	BillingMode            string
	ProvisionedThroughput  *throughput         `json:",omitempty"`
	OnDemandThroughput     *onDemandThroughput `json:",omitempty"`
	TableClass             string              `json:",omitempty"`
	DeletionProtection     bool
	// TTLAttribute is the attribute of UpdateTimeToLive; empty while disabled.
	TTLAttribute string `json:",omitempty"`
}

type attributeDefinition struct {
	AttributeName string
	AttributeType string
}

type keyElement struct {
	AttributeName string
	KeyType       string
}

type indexDefinition struct {
	IndexName             string
	KeySchema             []keyElement
	Projection            *indexProjection
	ProvisionedThroughput *throughput         `json:",omitempty"`
	OnDemandThroughput    *onDemandThroughput `json:",omitempty"`
	WarmThroughput        *warmThroughput     `json:",omitempty"`
}

type indexProjection struct {
	ProjectionType   string
	NonKeyAttributes []string `json:",omitempty"`
}

type throughput struct {
	ReadCapacityUnits  int64
	WriteCapacityUnits int64
}

type onDemandThroughput struct {
	MaxReadRequestUnits  int64
	MaxWriteRequestUnits int64
}

type warmThroughput struct {
	ReadUnitsPerSecond  int64
	WriteUnitsPerSecond int64
}

// kinds gives the types of the key attributes.
func (d *tableDefinition) kinds() map[string]kind {
	kinds := map[string]kind{}
	for _, a := range d.AttributeDefinitions {
		kinds[a.AttributeName], _ = kindNamed(a.AttributeType)
	}
	return kinds
}

// keysOf reads a checked key schema.
func keysOf(elements []keyElement, kinds map[string]kind) keySchema {
	var keys keySchema
	for _, e := range elements {
		a := keyAttribute{name: e.AttributeName, kind: kinds[e.AttributeName]}
		if e.KeyType == keyHash {
			keys.partition = a
		} else {
			keys.sort = a
		}
	}
	return keys
}

// projectedNames are the attributes of the entries of an index that does not
// project everything.
func projectedNames(d indexDefinition, tableKeys, indexKeys keySchema) []string {
	names := map[string]bool{tableKeys.partition.name: true, indexKeys.partition.name: true}
	for _, keys := range []keySchema{tableKeys, indexKeys} {
		if keys.hasSort() {
			names[keys.sort.name] = true
		}
	}
	for _, name := range d.Projection.NonKeyAttributes {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// check refuses what AWS refuses in CreateTable.
func (d *tableDefinition) check() error {
	if err := checkAttributeDefinitions(d.AttributeDefinitions); err != nil {
		return err
	}
	if err := checkKeyElements(d.KeySchema, "keySchema"); err != nil {
		return err
	}
	if err := d.checkDefined(d.KeySchema); err != nil {
		return err
	}
	if err := d.checkBilling(); err != nil {
		return err
	}
	if err := d.checkLocalIndexes(); err != nil {
		return err
	}
	if err := d.checkGlobalIndexes(); err != nil {
		return err
	}
	return d.checkIndexesTogether()
}

// checkAllUsed refuses attribute definitions that no key uses.
func (d *tableDefinition) checkAllUsed() error {
	used := d.keyNames()
	if len(used) == len(d.AttributeDefinitions) {
		return nil
	}
	if len(d.LocalSecondaryIndexes)+len(d.GlobalSecondaryIndexes) == 0 {
		return invalidParameter("Number of attributes in KeySchema does not exactly match number of attributes defined in AttributeDefinitions")
	}
	return invalidParameter("Some AttributeDefinitions are not used. AttributeDefinitions: [%s], keys used: [%s]", strings.Join(d.definedNames(), ", "), strings.Join(used, ", "))
}

// keyNames are the attributes that any key uses.
func (d *tableDefinition) keyNames() []string {
	names := map[string]bool{}
	for _, e := range d.KeySchema {
		names[e.AttributeName] = true
	}
	for _, x := range slices.Concat(d.LocalSecondaryIndexes, d.GlobalSecondaryIndexes) {
		for _, e := range x.KeySchema {
			names[e.AttributeName] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (d *tableDefinition) definedNames() []string {
	var names []string
	for _, a := range d.AttributeDefinitions {
		names = append(names, a.AttributeName)
	}
	return names
}

func (d *tableDefinition) checkDefined(elements []keyElement) error {
	defined := d.definedNames()
	var keys []string
	for _, e := range elements {
		keys = append(keys, e.AttributeName)
	}
	for _, key := range keys {
		if !slices.Contains(defined, key) {
			return invalidParameter("Some index key attributes are not defined in AttributeDefinitions. Keys: [%s], AttributeDefinitions: [%s]", strings.Join(keys, ", "), strings.Join(defined, ", "))
		}
	}
	return nil
}

func checkAttributeDefinitions(definitions []attributeDefinition) error {
	if definitions == nil {
		return missingParameter("attributeDefinitions")
	}
	seen := map[string]bool{}
	for i, a := range definitions {
		at := fmt.Sprintf("attributeDefinitions.%d.member", i+1)
		if err := checkKeyName(a.AttributeName, at+".attributeName"); err != nil {
			return err
		}
		if k, known := kindNamed(a.AttributeType); !known || !k.isScalar() {
			return constraintError(a.AttributeType, at+".attributeType", "Member must satisfy enum value set: [B, N, S]")
		}
		if seen[a.AttributeName] {
			return invalidParameter("Duplicate AttributeName in AttributeDefinitions: %s", a.AttributeName)
		}
		seen[a.AttributeName] = true
	}
	return nil
}

func checkKeyName(name, at string) error {
	switch {
	case name == "":
		return constraintError(name, at, "Member must have length greater than or equal to 1")
	case len(name) > maxKeyNameSize:
		return constraintError(name, at, "Member must have length less than or equal to 255")
	}
	return nil
}

// checkKeyElements checks the form of a key schema: a HASH key, then perhaps a
// RANGE key.
func checkKeyElements(elements []keyElement, at string) error {
	if elements == nil {
		return missingParameter(at)
	}
	for i, e := range elements {
		member := fmt.Sprintf("%s.%d.member", at, i+1)
		if err := checkKeyName(e.AttributeName, member+".attributeName"); err != nil {
			return err
		}
		if e.KeyType != keyHash && e.KeyType != keyRangeType {
			return constraintError(e.KeyType, member+".keyType", "Member must satisfy enum value set: [HASH, RANGE]")
		}
	}
	switch {
	case len(elements) == 0:
		return constraintError("[]", at, "Member must have length greater than or equal to 1")
	case len(elements) > 2:
		return constraintError(fmt.Sprint(elements), at, "Member must have length less than or equal to 2")
	case elements[0].KeyType != keyHash:
		return validationError("Invalid KeySchema: The first KeySchemaElement is not a HASH key type")
	case len(elements) == 2 && elements[1].KeyType != keyRangeType:
		return validationError("Invalid KeySchema: The second KeySchemaElement is not a RANGE key type")
	case len(elements) == 2 && elements[0].AttributeName == elements[1].AttributeName:
		return validationError("Both the Hash Key and the Range Key element in the KeySchema have the same name")
	}
	return nil
}

func (d *tableDefinition) checkBilling() error {
	switch d.BillingMode {
	case billingPerRequest:
		if d.ProvisionedThroughput != nil {
			return invalidParameter("Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when BillingMode is PAY_PER_REQUEST")
		}
	case billingProvisioned:
		if d.ProvisionedThroughput == nil {
			return invalidParameter("ReadCapacityUnits and WriteCapacityUnits must both be specified when BillingMode is PROVISIONED")
		}
	default:
		return constraintError(d.BillingMode, "billingMode", "Member must satisfy enum value set: [PROVISIONED, PAY_PER_REQUEST]")
	}
	if d.TableClass != "" && d.TableClass != defaultTableClass && d.TableClass != infrequentTableClass {
		return constraintError(d.TableClass, "tableClass", "Member must satisfy enum value set: [STANDARD, STANDARD_INFREQUENT_ACCESS]")
	}
	return d.ProvisionedThroughput.check("provisionedThroughput")
}

func (t *throughput) check(at string) error {
	if t == nil {
		return nil
	}
	for _, units := range []struct {
		name  string
		value int64
	}{{"ReadCapacityUnits", t.ReadCapacityUnits}, {"WriteCapacityUnits", t.WriteCapacityUnits}} {
		if units.value < 1 {
			return constraintError(units.value, at+"."+strings.ToLower(units.name[:1])+units.name[1:], "Member must have value greater than or equal to 1")
		}
		if units.value > maxProvisionedUnits {
			return validationError("Given value %d for %s is out of bounds", units.value, units.name)
		}
	}
	return nil
}

func (d *tableDefinition) checkLocalIndexes() error {
	if len(d.LocalSecondaryIndexes) > maxLocalIndexes {
		return invalidParameter("Number of LocalSecondaryIndexes exceeds per-table limit of 5")
	}
	for i, x := range d.LocalSecondaryIndexes {
		at := fmt.Sprintf("localSecondaryIndexes.%d.member", i+1)
		if err := d.checkIndex(x, at); err != nil {
			return err
		}
		switch {
		case len(d.KeySchema) != 2:
			return invalidParameter("Table KeySchema does not have a range key, which is required when specifying a LocalSecondaryIndex")
		case len(x.KeySchema) != 2:
			return invalidParameter("Index KeySchema does not have a range key for index: %s", x.IndexName)
		case x.KeySchema[0].AttributeName != d.KeySchema[0].AttributeName:
			return invalidParameter("Index KeySchema does not have the same leading hash key as table KeySchema for index: %s. index hash key: %s, table hash key: %s", x.IndexName, x.KeySchema[0].AttributeName, d.KeySchema[0].AttributeName)
		case x.ProvisionedThroughput != nil || x.OnDemandThroughput != nil || x.WarmThroughput != nil:
			return invalidParameter("Throughput cannot be specified for local secondary index: %s", x.IndexName)
		}
	}
	return nil
}

func (d *tableDefinition) checkGlobalIndexes() error {
	if len(d.GlobalSecondaryIndexes) > maxGlobalIndexes {
		return invalidParameter("GlobalSecondaryIndex count exceeds the per-table limit of 20")
	}
	for i, x := range d.GlobalSecondaryIndexes {
		if hasMultiAttributeKey(x.KeySchema) {
			return unsupported(multiAttributeKeys)
		}
		at := fmt.Sprintf("globalSecondaryIndexes.%d.member", i+1)
		if err := d.checkIndex(x, at); err != nil {
			return err
		}
		switch {
		case d.BillingMode == billingPerRequest && x.ProvisionedThroughput != nil:
			return invalidParameter("ProvisionedThroughput should not be specified for index: %s when BillingMode is PAY_PER_REQUEST", x.IndexName)
		case d.BillingMode == billingProvisioned && x.ProvisionedThroughput == nil:
			return invalidParameter("ProvisionedThroughput must be specified for index: %s", x.IndexName)
		}
		if err := x.ProvisionedThroughput.check(at + ".provisionedThroughput"); err != nil {
			return err
		}
	}
	return nil
}

// hasMultiAttributeKey tells keys of several partition or sort attributes.
func hasMultiAttributeKey(elements []keyElement) bool {
	count := map[string]int{}
	for _, e := range elements {
		count[e.KeyType]++
	}
	return count[keyHash] > 1 || count[keyRangeType] > 1
}

func (d *tableDefinition) checkIndex(x indexDefinition, at string) error {
	if err := checkName(x.IndexName, at+".indexName"); err != nil {
		return err
	}
	if err := checkKeyElements(x.KeySchema, at+".keySchema"); err != nil {
		return err
	}
	if err := d.checkDefined(x.KeySchema); err != nil {
		return err
	}
	if x.Projection == nil {
		return missingParameter(at + ".projection")
	}
	switch p := x.Projection; {
	case p.ProjectionType == "":
		return invalidParameter("Unknown ProjectionType: null")
	case p.ProjectionType != projectionAll && p.ProjectionType != projectionInclude && p.ProjectionType != projectionKeysOnly:
		return constraintError(p.ProjectionType, at+".projection.projectionType", "Member must satisfy enum value set: [ALL, INCLUDE, KEYS_ONLY]")
	case p.ProjectionType != projectionInclude && p.NonKeyAttributes != nil:
		return invalidParameter("ProjectionType is %s, but NonKeyAttributes is specified", p.ProjectionType)
	case p.ProjectionType == projectionInclude && len(p.NonKeyAttributes) == 0:
		return invalidParameter("ProjectionType is INCLUDE, but NonKeyAttributes is not specified")
	}
	return nil
}

// checkIndexesTogether checks what holds over all indexes of a table.
func (d *tableDefinition) checkIndexesTogether() error {
	names := map[string]bool{}
	projected := 0
	for _, x := range slices.Concat(d.LocalSecondaryIndexes, d.GlobalSecondaryIndexes) {
		if names[x.IndexName] {
			return invalidParameter("Duplicate index name: %s", x.IndexName)
		}
		names[x.IndexName] = true
		projected += len(x.Projection.NonKeyAttributes)
		for i, name := range x.Projection.NonKeyAttributes {
			if slices.Contains(x.Projection.NonKeyAttributes[:i], name) {
				return invalidParameter("Duplicate NonKeyAttribute %s for index: %s", name, x.IndexName)
			}
		}
	}
	if projected > maxNonKeyAttributes {
		return invalidParameter("Number of NonKeyAttributes over all indexes exceeds the limit of %d", maxNonKeyAttributes)
	}
	return nil
}

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_.-]+$`)

// checkName checks the name of a table or an index.
func checkName(name, at string) error {
	switch {
	case len(name) < minNameSize:
		return constraintError(name, at, "Member must have length greater than or equal to 3")
	case len(name) > maxTableNameSize:
		return constraintError(name, at, "Member must have length less than or equal to 255")
	case !namePattern.MatchString(name):
		return constraintError(name, at, "Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+")
	}
	return nil
}
