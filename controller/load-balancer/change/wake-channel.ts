/** The channel on which committed changes wake the workers; the payload is the load balancer's id. */
export const WAKE_CHANNEL = 'krater_load_balancer'
