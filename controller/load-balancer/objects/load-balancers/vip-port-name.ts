/** Identify the VIP port. The API creates it; the worker recreates or deletes it. */
export const vipPortName = (loadBalancerId: string): string => `octavia-lb-${loadBalancerId}`
export const vipDeviceId = (loadBalancerId: string): string => `lb-${loadBalancerId}`
