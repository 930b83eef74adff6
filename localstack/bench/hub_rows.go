package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// A Key names a row of a hub's table.
type Key map[string]types.AttributeValue

// batchSize is the most that DynamoDB writes at once.
const batchSize = 25

// Partitions finds the rows whose partition's name holds a text, past the hub.
func (h *Hub) Partitions(ctx context.Context, text string) ([]Key, error) {
	table, err := h.table(ctx)
	if err != nil {
		return nil, err
	}
	var keys []Key
	pages := dynamodb.NewScanPaginator(h.aws, &dynamodb.ScanInput{
		TableName: aws.String(table), ProjectionExpression: aws.String("pk, sk"), FilterExpression: aws.String("contains(pk, :text)"),
		ExpressionAttributeValues: Key{":text": &types.AttributeValueMemberS{Value: text}},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("find rows of the hub: %w", err)
		}
		for _, it := range page.Items {
			keys = append(keys, it)
		}
	}
	return keys, nil
}

// Remove deletes rows, past the hub. What an error leaves is not told.
func (h *Hub) Remove(ctx context.Context, keys []Key) error {
	table, err := h.table(ctx)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(keys, batchSize) {
		var writes []types.WriteRequest
		for _, k := range batch {
			writes = append(writes, types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: k}})
		}
		in := &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{table: writes}}
		if _, err := h.aws.BatchWriteItem(ctx, in); err != nil {
			return fmt.Errorf("remove rows of the hub: %w", err)
		}
	}
	return nil
}

// table finds the hub's table.
func (h *Hub) table(ctx context.Context) (string, error) {
	tables, err := h.aws.ListTables(ctx, &dynamodb.ListTablesInput{})
	if err != nil {
		return "", fmt.Errorf("find the hub's table: %w", err)
	}
	if len(tables.TableNames) == 0 {
		return "", fmt.Errorf("the hub has no table")
	}
	return tables.TableNames[0], nil
}
