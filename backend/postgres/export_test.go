package postgres

// Queues returns for how many leases calls would queue up behind a transaction.
func (b *Backend) Queues() int {
	b.queues.mu.Lock()
	defer b.queues.mu.Unlock()
	return len(b.queues.byToken)
}
