package simulation

// audit compares, when everybody is done, what was told with what there is.
func (w *world) audit() {
	w.auditLedger()
}

func (w *world) auditLedger() {
	created := map[string]map[string]bool{}
	note := func(serial, id string) {
		if created[serial] == nil {
			created[serial] = map[string]bool{}
		}
		created[serial][id] = true
	}
	for k, it := range w.monitor.items {
		if k.sk == "record" || len(k.sk) > 2 && k.sk[:2] == "m#" {
			note(serialOf(it), it.text("message_id"))
		}
	}
	for _, serial := range w.ledger.serials {
		if wrong := w.ledger.sent[serial].check(created[serial]); wrong != "" {
			w.violate("message %s: %s: %v, there is %v", serial, wrong, *w.ledger.sent[serial], created[serial])
		}
	}
}
