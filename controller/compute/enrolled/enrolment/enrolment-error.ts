/** A failure that the message explains to an operator. */
export class EnrolmentError extends Error {}
