/** Something that a client gave (a certificate request, a name, a key) cannot be used; the message says why and may be shown. */
export class InvalidX509 extends Error {}
