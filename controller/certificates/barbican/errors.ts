/** The key manager gives no usable answer, so nothing is known about the references. The message holds no secret. */
export class KeyManagerUnavailable extends Error {}
