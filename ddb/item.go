package ddb

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
)

// item is an item's attributes, or the values of an expression.
type item = map[string]types.AttributeValue

func (k key) item() item { return item{pk: text(k.pk), sk: text(k.sk)} }

func keyOf(it item) key {
	r := reader{it: it}
	return key{r.text(pk), r.text(sk)}
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func instant(i core.Instant) types.AttributeValue { return number(int64(i)) }

func flag(b bool) types.AttributeValue { return &types.AttributeValueMemberBOOL{Value: b} }

func texts(list []string) types.AttributeValue {
	values := make([]types.AttributeValue, 0, len(list))
	for _, s := range list {
		values = append(values, text(s))
	}
	return &types.AttributeValueMemberL{Value: values}
}

// micros is a moment to the microsecond, the grain at which writes are ordered.
func micros(t time.Time) int64 { return t.UnixMicro() }

// reader takes typed attributes out of an item. An attribute that is not there
// reads as its zero value; one of another type is an error, kept until the end,
// because then something else wrote to the table.
type reader struct {
	it  item
	err error
}

func (r *reader) text(name string) string {
	switch v := r.it[name].(type) {
	case nil:
	case *types.AttributeValueMemberS:
		return v.Value
	default:
		r.fail(name, "a text")
	}
	return ""
}

func (r *reader) number(name string) int64 {
	switch v := r.it[name].(type) {
	case nil:
	case *types.AttributeValueMemberN:
		n, err := strconv.ParseInt(v.Value, 10, 64)
		if err != nil {
			r.fail(name, "an integer")
		}
		return n
	default:
		r.fail(name, "a number")
	}
	return 0
}

func (r *reader) instant(name string) core.Instant { return core.Instant(r.number(name)) }

func (r *reader) duration(name string) time.Duration {
	return time.Duration(r.number(name)) * time.Millisecond
}

func (r *reader) flag(name string) bool {
	switch v := r.it[name].(type) {
	case nil:
	case *types.AttributeValueMemberBOOL:
		return v.Value
	default:
		r.fail(name, "a boolean")
	}
	return false
}

func (r *reader) texts(name string) []string {
	list := []string{}
	switch v := r.it[name].(type) {
	case nil:
	case *types.AttributeValueMemberL:
		for _, element := range v.Value {
			s, ok := element.(*types.AttributeValueMemberS)
			if !ok {
				r.fail(name, "a list of texts")
				return list
			}
			list = append(list, s.Value)
		}
	default:
		r.fail(name, "a list")
	}
	return list
}

// json returns the attribute's JSON text, or what stands for an absent one.
func (r *reader) json(name, absent string) json.RawMessage {
	if s := r.text(name); s != "" {
		return json.RawMessage(s)
	}
	return json.RawMessage(absent)
}

func (r *reader) has(name string) bool { return r.it[name] != nil }

func (r *reader) fail(name, want string) {
	if r.err == nil {
		r.err = core.Wrap(core.CodeInternal, "the store holds an item this hub cannot read",
			fmt.Errorf("attribute %s of %v is not %s", name, keyName(r.it), want))
	}
}

// readAll reads items; one that cannot be read fails them all.
func readAll[T any](items []item, read func(item) (T, error)) ([]T, error) {
	found, unreadable := readable(items, read)
	if unreadable != nil {
		return nil, unreadable
	}
	return found, nil
}

// readable reads items and leaves out those that it cannot read, with the first
// one's error: in a sweep or an inbox, one damaged item, or one of a later format,
// must not keep the others from being worked on.
func readable[T any](items []item, read func(item) (T, error)) (found []T, unreadable error) {
	found = make([]T, 0, len(items))
	for _, it := range items {
		one, err := read(it)
		if err == nil {
			found = append(found, one)
		} else if unreadable == nil {
			unreadable = err
		}
	}
	return found, unreadable
}

// keyName names an item in an error.
func keyName(it item) string {
	name := ""
	for _, part := range []string{pk, sk} {
		if s, ok := it[part].(*types.AttributeValueMemberS); ok {
			name += "/" + s.Value
		}
	}
	return name
}
