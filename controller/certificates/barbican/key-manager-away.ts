/** The key manager does not answer, or not as it should: nothing is known about what is referred to. The words hold no secret. */
export class KeyManagerAway extends Error {}

/** One reference is not good; the message is a clause that may be shown to the caller. */
export class BadTarget extends Error {}
