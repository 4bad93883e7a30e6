/** A pair of amphorae that fails over, with the networks in OVN. */
process.env.KRATER_TEST_NETWORK_DRIVER = 'ovn'
await import('../../end-to-end/pair.test.js')
