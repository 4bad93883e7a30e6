/** Members on other subnets, with the networks in OVN. */
process.env.KRATER_TEST_NETWORK_DRIVER = 'ovn'
await import('../../end-to-end/subnets.test.js')
