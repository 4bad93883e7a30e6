/** A pair of amphorae behind a floating IP, with the networks in OVN. */
process.env.KRATER_TEST_NETWORK_DRIVER = 'ovn'
await import('../../end-to-end/floating-ip.test.js')
