/**
 * Input from a client (a certificate request, a name, a key) is invalid. The message says why and may be
 * shown to the client.
 */
export class InvalidX509 extends Error {}
