extern "C" __global__ void attention_none(void)
{
}
