package dynamo

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// attributeValues gives attributes as the SDK reads them off the wire. They are the
// caller's: nothing of them is shared but strings.
func attributeValues(attributes []attribute) map[string]types.AttributeValue {
	m := make(map[string]types.AttributeValue, len(attributes))
	// Most values are texts and numbers, of which an item has a dozen: they are
	// allocated together.
	var strings []types.AttributeValueMemberS
	var numbers []types.AttributeValueMemberN
	for i, a := range attributes {
		switch a.value.kind {
		case kindString:
			if strings == nil {
				strings = make([]types.AttributeValueMemberS, 0, len(attributes)-i)
			}
			strings = append(strings, types.AttributeValueMemberS{Value: a.value.text})
			m[a.name] = &strings[len(strings)-1]
		case kindNumber:
			if numbers == nil {
				numbers = make([]types.AttributeValueMemberN, 0, len(attributes)-i)
			}
			numbers = append(numbers, types.AttributeValueMemberN{Value: a.value.text})
			m[a.name] = &numbers[len(numbers)-1]
		default:
			m[a.name] = attributeValue(a.value)
		}
	}
	return m
}

func attributeValue(v value) types.AttributeValue {
	switch v.kind {
	case kindString:
		return &types.AttributeValueMemberS{Value: v.text}
	case kindNumber:
		return &types.AttributeValueMemberN{Value: v.text}
	case kindBinary:
		return &types.AttributeValueMemberB{Value: []byte(v.text)}
	case kindBool:
		return &types.AttributeValueMemberBOOL{Value: v.truth}
	case kindNull:
		return &types.AttributeValueMemberNULL{Value: v.truth}
	case kindStringSet:
		return &types.AttributeValueMemberSS{Value: members(v)}
	case kindNumberSet:
		return &types.AttributeValueMemberNS{Value: members(v)}
	case kindBinarySet:
		set := make([][]byte, len(v.list()))
		for i, m := range v.list() {
			set[i] = []byte(m.text)
		}
		return &types.AttributeValueMemberBS{Value: set}
	case kindList:
		elements := make([]types.AttributeValue, len(v.list()))
		for i, e := range v.list() {
			elements[i] = attributeValue(e)
		}
		return &types.AttributeValueMemberL{Value: elements}
	}
	return &types.AttributeValueMemberM{Value: attributeValues(v.fields())}
}

func members(v value) []string {
	texts := make([]string, len(v.list()))
	for i, m := range v.list() {
		texts[i] = m.text
	}
	return texts
}

// first is the ConsumedCapacity of a request for one table; nil where none is
// wanted.
func (all usages) first(wanted optional[string]) *types.ConsumedCapacity {
	mode := capacityMode(wanted.value)
	if !mode.wanted() {
		return nil
	}
	c := all[0].consumed(mode, "")
	return &c
}

// capacities is the list that batches and transactions answer; transaction is as
// for appendCapacity.
func (all usages) capacities(wanted optional[string], transaction string) []types.ConsumedCapacity {
	mode := capacityMode(wanted.value)
	if !mode.wanted() {
		return nil
	}
	list := make([]types.ConsumedCapacity, len(all))
	for i, u := range all {
		list[i] = u.consumed(mode, transaction)
	}
	return list
}

func (u *usage) consumed(mode capacityMode, transaction string) types.ConsumedCapacity {
	whole := capacityOf(u.total(), transaction)
	c := types.ConsumedCapacity{
		TableName: aws.String(u.table.name), CapacityUnits: whole.CapacityUnits,
		ReadCapacityUnits: whole.ReadCapacityUnits, WriteCapacityUnits: whole.WriteCapacityUnits,
	}
	if mode != capacityIndexes {
		return c
	}
	base := capacityOf(u.base, transaction)
	c.Table = &base
	for _, x := range u.indexes {
		into := &c.GlobalSecondaryIndexes
		if x.index.local {
			into = &c.LocalSecondaryIndexes
		}
		if *into == nil {
			*into = map[string]types.Capacity{}
		}
		(*into)[x.index.name] = capacityOf(x.units, transaction)
	}
	return c
}

func capacityOf(units float64, transaction string) types.Capacity {
	c := types.Capacity{CapacityUnits: aws.Float64(units)}
	switch transaction {
	case unitsRead.member():
		c.ReadCapacityUnits = aws.Float64(units)
	case unitsWritten.member():
		c.WriteCapacityUnits = aws.Float64(units)
	}
	return c
}
