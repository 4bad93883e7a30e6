import type { Argument, Option } from 'commander'

/** What a command takes and what it does. Its name and its summary are its line in commands.ts. */
export type Command = {
  arguments?: readonly Argument[]
  options?: readonly Option[]
  /** Whether what follows the first argument belongs to the last one, options too. */
  passThroughOptions?: true
  /**
   * @param directory the state directory
   * @param given arguments and options by their names
   * @returns the exit status; 0 when there is none
   */
  run(directory: string, given: Record<string, unknown>): Promise<number> | Promise<void>
}
