import * as z from 'zod'

/**
 * The key channel: the key manager's own TLS server, on which amphorae read the material of their load balancers and
 * controllers say which material that is. Both know its certificate beforehand. A client proves its key once per hour
 * and gets a token.
 */
export const KEY_CHANNEL_PORT = 9312

/** The name in the server's certificate, whatever its address. */
export const KEY_CHANNEL_NAME = 'key-manager.krater.internal'

/** Label of the keying material (RFC 5705) that ties a proof to its TLS connection. */
export const KEY_CHANNEL_EXPORTER = 'EXPORTER-krater-key-channel'
export const KEY_CHANNEL_EXPORTED_BYTES = 32

/** The path at which a client gets a token. */
export const TOKEN_PATH = '/v1/tokens'

/** Who asks: `controller`, or an amphora by its id. */
export const subjectSchema = z.union([z.literal('controller'), z.uuid()])

/** `signature` is an Ed25519 signature over proofOf(), in base64. */
export const tokenRequestSchema = z.strictObject({ subject: subjectSchema, signature: z.base64().max(200) })

/** `expires_in` is in seconds. */
export const tokenAnswerSchema = z.object({ token: z.string().min(1).max(1000), expires_in: z.number().positive() })

export type TokenAnswer = z.output<typeof tokenAnswerSchema>

/** What a client signs. @param exported keying material of its TLS connection */
export const proofOf = (subject: string, exported: Buffer): Buffer =>
  Buffer.concat([Buffer.from(`krater key channel\0${subject}\0`), exported])
