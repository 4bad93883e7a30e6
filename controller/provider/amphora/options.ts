import * as z from 'zod'

const file = z.string().optional()

/** Settings of the amphora provider: the keys for reaching amphorae. */
export const amphoraKeyOptions = z
  .strictObject({
    amphora_master: file.describe(
      'File with 32 random bytes in hexadecimal, from which amphora host keys and heartbeat keys are derived',
    ),
    controller_ssh: file.describe(
      'File with the ed25519 private key with which the controller connects to amphora agents',
    ),
    operator_ssh: file.describe('File with the ed25519 private key with which operators get a root shell on amphorae'),
  })
  .prefault({})
