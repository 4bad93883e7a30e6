/** L7 policies, with the networks in OVN. */
process.env.KRATER_TEST_NETWORK_DRIVER = 'ovn'
await import('../../end-to-end/l7.test.js')
