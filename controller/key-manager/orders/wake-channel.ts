/** The channel that wakes workers for accepted orders; the payload is the order's lane (`secret_order.lane`). */
export const ORDER_CHANNEL = 'krater_secret_order'
