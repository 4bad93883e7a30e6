/** Channel on which commits wake the workers. The payload is the load balancer's id. */
export const WAKE_CHANNEL = 'krater_load_balancer'
