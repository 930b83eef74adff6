package dynamo

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"drawbridge/localstack/fakeaws/engine"
)

// Where the engine pretends to run; it shows in ARNs only.
const arnPrefix = "arn:aws:dynamodb:us-east-1:000000000000:table/"

const statusActive = "ACTIVE"

// maxListedTables is the limit and default of ListTables.
const maxListedTables = 100

type tableNameInput struct {
	TableName *string
}

// A tableSettings is what CreateTable and UpdateTable have in common.
type tableSettings struct {
	TableName                 *string
	AttributeDefinitions      []attributeDefinition
	BillingMode               *string
	ProvisionedThroughput     *throughput
	OnDemandThroughput        *onDemandThroughput
	WarmThroughput            *warmThroughput
	TableClass                *string
	DeletionProtectionEnabled *bool
	StreamSpecification       *struct {
		StreamEnabled  *bool
		StreamViewType *string
	}
	SSESpecification *struct {
		Enabled        *bool
		SSEType        *string
		KMSMasterKeyID *string `json:"KMSMasterKeyId"`
	}
}

// checkSupported refuses by name what the engine does not do.
func (s *tableSettings) checkSupported() error {
	if stream := s.StreamSpecification; stream != nil && stream.StreamEnabled != nil && *stream.StreamEnabled {
		return unsupported("StreamSpecification (DynamoDB Streams)")
	}
	if sse := s.SSESpecification; sse != nil && (sse.Enabled != nil && *sse.Enabled || sse.SSEType != nil || sse.KMSMasterKeyID != nil) {
		return unsupported("SSESpecification")
	}
	return nil
}

// checkTableName checks that a name was given and is well formed.
func checkTableName(name *string) error {
	if name == nil {
		return missingParameter("tableName")
	}
	return checkName(*name, "tableName")
}

type createTableInput struct {
	tableSettings
	KeySchema              []keyElement
	LocalSecondaryIndexes  []indexDefinition
	GlobalSecondaryIndexes []indexDefinition
	Tags                   []json.RawMessage
	ResourcePolicy         *string
	VectorIndexes          []json.RawMessage
	GlobalTableSourceArn   *string
}

func (in *createTableInput) checkSupported() error {
	switch {
	case len(in.Tags) > 0:
		return unsupported("Tags")
	case in.ResourcePolicy != nil:
		return unsupported("ResourcePolicy")
	case len(in.VectorIndexes) > 0:
		return unsupported("VectorIndexes")
	case in.GlobalTableSourceArn != nil:
		return unsupported("GlobalTableSourceArn")
	}
	return in.tableSettings.checkSupported()
}

// definition makes the definition that the request asks for.
func (in *createTableInput) definition() (*tableDefinition, error) {
	switch {
	case in.LocalSecondaryIndexes != nil && len(in.LocalSecondaryIndexes) == 0:
		return nil, invalidParameter("List of LocalSecondaryIndexes is empty")
	case in.GlobalSecondaryIndexes != nil && len(in.GlobalSecondaryIndexes) == 0:
		return nil, invalidParameter("List of GlobalSecondaryIndexes is empty")
	}
	d := &tableDefinition{
		TableName:              *in.TableName,
		AttributeDefinitions:   in.AttributeDefinitions,
		KeySchema:              in.KeySchema,
		LocalSecondaryIndexes:  in.LocalSecondaryIndexes,
		GlobalSecondaryIndexes: in.GlobalSecondaryIndexes,
		BillingMode:            billingProvisioned,
		ProvisionedThroughput:  in.ProvisionedThroughput,
		OnDemandThroughput:     in.OnDemandThroughput,
		DeletionProtection:     in.DeletionProtectionEnabled != nil && *in.DeletionProtectionEnabled,
	}
	if in.BillingMode != nil {
		d.BillingMode = *in.BillingMode
	}
	if in.TableClass != nil {
		d.TableClass = *in.TableClass
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	return d, d.checkAllUsed()
}

func (e *Engine) createTable(body []byte) (answer, error) {
	in := &createTableInput{}
	if err := readAdmin(body, in); err != nil {
		return answer{}, err
	}
	if err := checkTableName(in.TableName); err != nil {
		return answer{}, err
	}
	if err := in.checkSupported(); err != nil {
		return answer{}, err
	}
	d, err := in.definition()
	if err != nil {
		return answer{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tables[d.TableName] != nil {
		return answer{}, newError(codeInUse, "Table already exists: %s", d.TableName)
	}
	d.ID, d.UUID, d.Created = e.lastID+1, uuid.NewString(), epochSeconds(e.clock())
	record, err := tableRecord(d)
	if err != nil {
		return answer{}, err
	}
	e.lastID++
	t := newTable(d)
	e.tables[d.TableName] = t
	// The table can be used at once; only this answer calls it CREATING.
	return answered(map[string]any{"TableDescription": t.describe("CREATING")}, e.append(record))
}

func epochSeconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }

// append writes records of the control plane to the journal.
func (e *Engine) append(records ...engine.Write) engine.Ticket {
	if e.journal == nil {
		return nil
	}
	return e.journal.Append(records)
}

// redefine puts a changed definition in place. Call it under the lock.
func (e *Engine) redefine(t *table, d *tableDefinition) (engine.Ticket, error) {
	record, err := tableRecord(d)
	if err != nil {
		return nil, err
	}
	t.definition = d
	return e.append(record), nil
}

// describedTable finds a table for an operation on the table itself.
func (e *Engine) describedTable(name string) (*table, error) {
	if t := e.tables[name]; t != nil {
		return t, nil
	}
	if err := checkName(name, "tableName"); err != nil {
		return nil, err
	}
	return nil, namedTableNotFound(name)
}

func (e *Engine) describeTable(body []byte) (answer, error) {
	in := &tableNameInput{}
	if err := readAdmin(body, in); err != nil {
		return answer{}, err
	}
	if in.TableName == nil {
		return answer{}, missingParameter("tableName")
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	t, err := e.describedTable(*in.TableName)
	if err != nil {
		return answer{}, err
	}
	return answered(map[string]any{"Table": t.describe(statusActive)}, e.barrier())
}

// describe gives the TableDescription. Sizes and counts are exact; AWS brings
// them up to date every six hours only.
func (t *table) describe(status string) map[string]any {
	d := t.definition
	out := map[string]any{
		"TableName":                 d.TableName,
		"TableId":                   d.UUID,
		"TableArn":                  arnPrefix + d.TableName,
		"TableStatus":               status,
		"CreationDateTime":          d.Created,
		"AttributeDefinitions":      d.AttributeDefinitions,
		"KeySchema":                 d.KeySchema,
		"ItemCount":                 t.rows.Len(),
		"TableSizeBytes":            t.bytes,
		"ProvisionedThroughput":     describeThroughput(d.ProvisionedThroughput),
		"DeletionProtectionEnabled": d.DeletionProtection,
	}
	if d.BillingMode == billingPerRequest {
		out["BillingModeSummary"] = map[string]any{"BillingMode": d.BillingMode, "LastUpdateToPayPerRequestDateTime": d.Created}
	}
	if d.OnDemandThroughput != nil {
		out["OnDemandThroughput"] = d.OnDemandThroughput
	}
	if d.TableClass != "" {
		out["TableClassSummary"] = map[string]any{"TableClass": d.TableClass}
	}
	var local, global []map[string]any
	for _, x := range t.indexes {
		if x.local {
			local = append(local, x.describe(d.TableName))
		} else {
			global = append(global, x.describe(d.TableName))
		}
	}
	if local != nil {
		out["LocalSecondaryIndexes"] = local
	}
	if global != nil {
		out["GlobalSecondaryIndexes"] = global
	}
	return out
}

func (x *index) describe(tableName string) map[string]any {
	out := map[string]any{
		"IndexName":      x.name,
		"IndexArn":       arnPrefix + tableName + "/index/" + x.name,
		"KeySchema":      x.definition.KeySchema,
		"Projection":     x.definition.Projection,
		"ItemCount":      x.entries.Len(),
		"IndexSizeBytes": x.bytes,
	}
	if !x.local {
		out["IndexStatus"] = statusActive
		out["ProvisionedThroughput"] = describeThroughput(x.definition.ProvisionedThroughput)
		if x.definition.OnDemandThroughput != nil {
			out["OnDemandThroughput"] = x.definition.OnDemandThroughput
		}
	}
	return out
}

func describeThroughput(t *throughput) map[string]int64 {
	if t == nil {
		t = &throughput{}
	}
	return map[string]int64{"ReadCapacityUnits": t.ReadCapacityUnits, "WriteCapacityUnits": t.WriteCapacityUnits, "NumberOfDecreasesToday": 0}
}

type updateTableInput struct {
	tableSettings
	GlobalSecondaryIndexUpdates []indexUpdate
	ReplicaUpdates              []json.RawMessage
	GlobalTableWitnessUpdates   []json.RawMessage
	VectorIndexUpdates          []json.RawMessage
	MultiRegionConsistency      *string
}

type indexUpdate struct {
	Create *indexDefinition
	Delete *struct {
		IndexName string
	}
	Update *struct {
		IndexName             string
		ProvisionedThroughput *throughput
		OnDemandThroughput    *onDemandThroughput
		WarmThroughput        *warmThroughput
	}
}

func (in *updateTableInput) checkSupported() error {
	switch {
	case len(in.ReplicaUpdates) > 0:
		return unsupported("ReplicaUpdates")
	case len(in.GlobalTableWitnessUpdates) > 0:
		return unsupported("GlobalTableWitnessUpdates")
	case len(in.VectorIndexUpdates) > 0:
		return unsupported("VectorIndexUpdates")
	case in.MultiRegionConsistency != nil:
		return unsupported("MultiRegionConsistency")
	}
	return in.tableSettings.checkSupported()
}

func (in *updateTableInput) changesNothing() bool {
	return in.ProvisionedThroughput == nil && in.BillingMode == nil && in.OnDemandThroughput == nil && in.WarmThroughput == nil &&
		in.TableClass == nil && in.DeletionProtectionEnabled == nil && in.StreamSpecification == nil && in.SSESpecification == nil &&
		len(in.GlobalSecondaryIndexUpdates) == 0
}

// checkUpdates checks the list of index updates by itself.
func (in *updateTableInput) checkUpdates() error {
	names := map[string]bool{}
	built := 0
	for _, u := range in.GlobalSecondaryIndexUpdates {
		var name string
		switch {
		case u.Create != nil && u.Delete == nil && u.Update == nil:
			name = u.Create.IndexName
			built++
		case u.Delete != nil && u.Create == nil && u.Update == nil:
			name = u.Delete.IndexName
			built++
		case u.Update != nil && u.Create == nil && u.Delete == nil:
			name = u.Update.IndexName
		default:
			return invalidParameter("Exactly one of GlobalSecondaryIndexUpdate.Update, GlobalSecondaryIndexUpdate.Create, GlobalSecondaryIndexUpdate.Delete must not be null")
		}
		if names[name] {
			return invalidParameter("Only one global secondary index update per index is allowed simultaneously. Index: %s", name)
		}
		names[name] = true
	}
	if built > 1 {
		return newError(codeLimitExceeded, "Subscriber limit exceeded: Only 1 online index can be created or deleted simultaneously per table")
	}
	return nil
}

// applied makes the definition that results from the update.
func (in *updateTableInput) applied(old *tableDefinition) (*tableDefinition, error) {
	d := *old
	if in.DeletionProtectionEnabled != nil {
		d.DeletionProtection = *in.DeletionProtectionEnabled
	}
	if in.TableClass != nil {
		d.TableClass = *in.TableClass
	}
	if in.OnDemandThroughput != nil {
		d.OnDemandThroughput = in.OnDemandThroughput
	}
	d.GlobalSecondaryIndexes = slices.Clone(old.GlobalSecondaryIndexes)
	if in.BillingMode != nil {
		d.BillingMode = *in.BillingMode
		if d.BillingMode == billingPerRequest {
			d.ProvisionedThroughput = nil
			for i := range d.GlobalSecondaryIndexes {
				d.GlobalSecondaryIndexes[i].ProvisionedThroughput = nil
			}
		}
	}
	if in.ProvisionedThroughput != nil {
		d.ProvisionedThroughput = in.ProvisionedThroughput
	}
	if in.AttributeDefinitions != nil {
		if err := checkAttributeDefinitions(in.AttributeDefinitions); err != nil {
			return nil, err
		}
		if err := d.define(in.AttributeDefinitions); err != nil {
			return nil, err
		}
	}
	for _, u := range in.GlobalSecondaryIndexUpdates {
		if err := d.update(u); err != nil {
			return nil, err
		}
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	d.dropUnusedDefinitions()
	return &d, nil
}

// define adds the definitions that an update names to those of the table.
func (d *tableDefinition) define(added []attributeDefinition) error {
	d.AttributeDefinitions = slices.Clone(d.AttributeDefinitions)
	kinds := d.kinds()
	for _, a := range added {
		k, known := kinds[a.AttributeName]
		if !known {
			d.AttributeDefinitions = append(d.AttributeDefinitions, a)
		} else if k.String() != a.AttributeType {
			return invalidParameter("Attribute %s is already defined with type %s", a.AttributeName, k)
		}
	}
	return nil
}

// dropUnusedDefinitions forgets attributes that no key uses any more.
func (d *tableDefinition) dropUnusedDefinitions() {
	used := d.keyNames()
	d.AttributeDefinitions = slices.DeleteFunc(slices.Clone(d.AttributeDefinitions), func(a attributeDefinition) bool {
		return !slices.Contains(used, a.AttributeName)
	})
}

func (d *tableDefinition) update(u indexUpdate) error {
	at := func(name string) int {
		return slices.IndexFunc(d.GlobalSecondaryIndexes, func(x indexDefinition) bool { return x.IndexName == name })
	}
	notFound := func(name string) error {
		return newError(codeNotFound, "Requested resource not found: Index: %s not found in table: %s", name, d.TableName)
	}
	switch {
	case u.Create != nil:
		if at(u.Create.IndexName) >= 0 {
			return validationError("Attempting to create an index which already exists")
		}
		d.GlobalSecondaryIndexes = append(d.GlobalSecondaryIndexes, *u.Create)
	case u.Delete != nil:
		i := at(u.Delete.IndexName)
		if i < 0 {
			return notFound(u.Delete.IndexName)
		}
		d.GlobalSecondaryIndexes = slices.Delete(d.GlobalSecondaryIndexes, i, i+1)
	default:
		i := at(u.Update.IndexName)
		if i < 0 {
			return notFound(u.Update.IndexName)
		}
		x := &d.GlobalSecondaryIndexes[i]
		if u.Update.ProvisionedThroughput != nil {
			x.ProvisionedThroughput = u.Update.ProvisionedThroughput
		}
		if u.Update.OnDemandThroughput != nil {
			x.OnDemandThroughput = u.Update.OnDemandThroughput
		}
	}
	return nil
}

func (e *Engine) updateTable(body []byte) (answer, error) {
	in := &updateTableInput{}
	if err := readAdmin(body, in); err != nil {
		return answer{}, err
	}
	if err := checkTableName(in.TableName); err != nil {
		return answer{}, err
	}
	if err := in.checkSupported(); err != nil {
		return answer{}, err
	}
	if in.changesNothing() {
		return answer{}, validationError("At least one of ProvisionedThroughput, BillingMode, UpdateStreamEnabled, GlobalSecondaryIndexUpdates or SSESpecification or ReplicaUpdates is required")
	}
	if err := in.checkUpdates(); err != nil {
		return answer{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t, err := e.describedTable(*in.TableName)
	if err != nil {
		return answer{}, err
	}
	d, err := in.applied(t.definition)
	if err != nil {
		return answer{}, err
	}
	ticket, err := e.redefine(t, d)
	if err != nil {
		return answer{}, err
	}
	t.reindex()
	return answered(map[string]any{"TableDescription": t.describe("UPDATING")}, ticket)
}

// reindex brings the global indexes into line with the definition: those that
// are gone are dropped, new ones are filled from the rows, which AWS does in
// the background.
func (t *table) reindex() {
	kinds := t.definition.kinds()
	indexes := slices.DeleteFunc(slices.Clone(t.indexes), func(x *index) bool { return !x.local })
	for _, d := range t.definition.GlobalSecondaryIndexes {
		x := t.index(d.IndexName)
		if x == nil {
			x = newIndex(d, false, t.keys, kinds)
			x.fill(t.rows)
		}
		x.definition = d
		indexes = append(indexes, x)
	}
	t.indexes = indexes
}

func (e *Engine) deleteTable(body []byte) (answer, error) {
	in := &tableNameInput{}
	if err := readAdmin(body, in); err != nil {
		return answer{}, err
	}
	if err := checkTableName(in.TableName); err != nil {
		return answer{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t, err := e.describedTable(*in.TableName)
	if err != nil {
		return answer{}, err
	}
	if t.definition.DeletionProtection {
		return answer{}, validationError("Resource cannot be deleted as it is currently protected against deletion. Disable deletion protection first.")
	}
	delete(e.tables, t.name)
	if e.journal == nil {
		return answered(map[string]any{"TableDescription": t.describe("DELETING")}, nil)
	}
	records := make([]engine.Write, 0, t.rows.Len()+1)
	t.rows.Scan(func(key string, _ row) bool {
		records = append(records, engine.Write{Space: itemSpace, Key: itemKey(t.definition.ID, key)})
		return true
	})
	records = append(records, engine.Write{Space: tableSpace, Key: t.name})
	return answered(map[string]any{"TableDescription": t.describe("DELETING")}, e.append(records...))
}

type listTablesInput struct {
	ExclusiveStartTableName *string
	Limit                   *int
}

func (e *Engine) listTables(body []byte) (answer, error) {
	in := &listTablesInput{}
	if err := readAdmin(body, in); err != nil {
		return answer{}, err
	}
	limit := maxListedTables
	if in.Limit != nil {
		limit = *in.Limit
		if limit < 1 || limit > maxListedTables {
			return answer{}, constraintError(limit, "limit", "Member must have value between 1 and 100")
		}
	}
	e.mu.RLock()
	names := slices.Sorted(maps.Keys(e.tables))
	ticket := e.barrier()
	e.mu.RUnlock()
	if in.ExclusiveStartTableName != nil {
		after, _ := slices.BinarySearch(names, *in.ExclusiveStartTableName+"\x00")
		names = names[after:]
	}
	out := map[string]any{}
	if len(names) > limit {
		names = names[:limit]
		out["LastEvaluatedTableName"] = names[limit-1]
	}
	if names == nil {
		names = []string{}
	}
	out["TableNames"] = names
	return answered(out, ticket)
}
