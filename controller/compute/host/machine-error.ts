/** A machine cannot be started, changed or ended; the message says why. */
export class MachineError extends Error {}
