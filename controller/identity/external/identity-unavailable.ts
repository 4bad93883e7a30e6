/** Keystone gives no verdict: it does not answer, or not as it should. The message contains no secret. */
export class IdentityUnavailable extends Error {}

/** Keystone rejects the service user. An immediate retry could only lock the user out. */
export class ServiceUserRefused extends IdentityUnavailable {}
