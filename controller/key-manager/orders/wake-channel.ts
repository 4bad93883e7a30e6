/** The channel on which accepted orders wake the workers; the payload is the order's lane (`secret_order.lane`). */
export const ORDER_CHANNEL = 'krater_secret_order'
