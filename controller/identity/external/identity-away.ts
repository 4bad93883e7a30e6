/** Keystone cannot say whether a token is good: it does not answer, or answers what it should not. The words hold no secret. */
export class IdentityAway extends Error {}

/** Keystone refuses our own user, so asking again at once would only lock it out. */
export class ServiceUserRefused extends IdentityAway {}
