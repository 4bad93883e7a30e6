/** By these the API, which makes the port of a VIP, and the worker, which makes it again or removes it, know it for the same. */
export const vipPortName = (loadBalancerId: string): string => `octavia-lb-${loadBalancerId}`
export const vipDeviceId = (loadBalancerId: string): string => `lb-${loadBalancerId}`
