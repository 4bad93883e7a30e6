/** Whether a listener or pool of this protocol gets flows from the kernel instead of connections from HAProxy. */
export const isDatagram = (protocol: string): boolean => protocol === 'UDP' || protocol === 'SCTP'
