/** Codes of faults that end by themselves once OVN serves, and what a load balancer waits for is there. */
export const OVN_FAULT = {
  unreachable: 'ovn-unreachable',
  networkNotReady: 'network-not-ready',
  notInstalled: 'not-installed',
} as const
