/** The key manager gives no usable answer, so nothing is known about the references. The message holds no secret. */
export class KeyManagerUnavailable extends Error {}

/** One reference cannot be used. The message is a clause that the caller may see. */
export class UnusableReference extends Error {}
