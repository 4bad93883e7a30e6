/** The channel that wakes validators when a client has prepared a challenge. */
export const CHALLENGE_CHANNEL = 'krater_acme_challenge'
