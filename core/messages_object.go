package core

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
)

// object is a JSON object under construction: its members keep their order,
// because a reader of payload_json sees it.
type object []member

type member struct {
	name  string
	value json.RawMessage
}

// put sets a member, in its place when it is there already.
func (o *object) put(name string, value json.RawMessage) {
	if i := slices.IndexFunc(*o, func(m member) bool { return m.name == name }); i >= 0 {
		(*o)[i].value = value
		return
	}
	*o = append(*o, member{name, value})
}

// get returns a member's value, nil when there is none.
func (o object) get(name string) json.RawMessage {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

func (o *object) drop(name string) {
	*o = slices.DeleteFunc(*o, func(m member) bool { return m.name == name })
}

// merge puts the members of a JSON object; any other value has none.
func (o *object) merge(value json.RawMessage) error {
	if !isObject(value) {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(value))
	if _, err := decoder.Token(); err != nil {
		return err
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		var inner json.RawMessage
		if err := decoder.Decode(&inner); err != nil {
			return err
		}
		o.put(name.(string), inner)
	}
	return nil
}

func isObject(value json.RawMessage) bool {
	value = bytes.TrimSpace(value)
	return len(value) > 0 && value[0] == '{'
}

func (o object) encode() json.RawMessage {
	text := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, quoted(m.name)...)
		text = append(text, ':')
		text = append(text, m.value...)
	}
	return append(text, '}')
}

// quoted is a text as JSON, with <, > and & as they are.
func quoted(s string) json.RawMessage {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		return json.RawMessage(`""`) // never: a text always encodes
	}
	return bytes.TrimSpace(text.Bytes())
}

func numeral(n int64) json.RawMessage { return strconv.AppendInt(nil, n, 10) }
